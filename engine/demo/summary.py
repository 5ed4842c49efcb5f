"""Hold what the engine counted at the source against what the agent stored of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """One demonstration in numbers.

    Attributes:
        events_emitted: Counted by pool and scheduler, not by whoever records them; None, like
            what else only they know, of an engine that was killed.
        per_kind: For each kind of event: emitted, stored, lost.
        requests: Requests that arrived; the sum of `finished_by_reason`, where a request with
            several answers ends as its first one does.
        ledger_balanced: Every audit agreed, and emitted = stored + lost for each kind.
        leaked_blocks: Each with the owner that ended without giving it back; None where nobody saw
            that.
        refused_frees: Blocks that were freed although nobody held them.
        injected: What was made to go wrong, in words.
        engine_crashed: It was killed before it could end.
    """

    events_emitted: int | None
    events_stored: int
    events_lost: int
    per_kind: dict[str, dict[str, int | None]]
    requests: int
    finished_by_reason: dict[str, int]
    rejected_by_reason: dict[str, int]
    preemptions: int
    prefix_hit_tokens: int | None
    cancelled: int | None
    seconds_with_pool_wait: int
    audits_passed: int
    audits_failed: int
    ledger_balanced: bool
    active_blocks_at_end: int | None
    leaked_blocks: list[dict[str, Any]]
    refused_frees: int
    injected: list[str]
    engine_crashed: bool

    @property
    def faults(self) -> list[str]:
        """What is wrong, in words; empty when all is well."""
        found = []
        if self.events_lost:
            found.append(f"{self.events_lost} events were lost")
        if self.audits_failed:
            found.append(f"{self.audits_failed} audits failed")
        if unaccounted := self._unaccounted():
            found.append(f"emitted is not stored + lost for {', '.join(unaccounted)}")
        if not (self.ledger_balanced or found):
            found.append("the ledger does not balance")
        if self.leaked_blocks:
            found.append(f"{len({leak['block'] for leak in self.leaked_blocks})} blocks leaked")
        if self.refused_frees:
            found.append(f"{self.refused_frees} blocks were freed although nobody held them")
        if self.engine_crashed:
            found.append("the engine died before it could end")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the summary as the command prints it."""
        return asdict(self)

    def _unaccounted(self) -> list[str]:
        return [kind for kind, count in self.per_kind.items() if not _adds_up(count)]


def accounts_of_crash(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accounts of an engine that could leave none, from what is stored of it."""

    def known(kind: str) -> int:
        count = stored["per_kind"].get(kind, {})
        return int(count.get("stored", 0) + count.get("lost", 0))

    unknown = dict.fromkeys(("events_emitted", "prefix_hit_tokens", "cancelled"))
    return {
        **unknown,
        "per_kind": None,
        "requests": known("arrive"),
        "finished_by_reason": {},
        "rejected_by_reason": {},
        "preemptions": known("preempt"),
    }


def summarize(
    accounts: Mapping[str, Any], stored: Mapping[str, Any], *, injected: Sequence[str] = ()
) -> DemoSummary:
    """Join the engine's accounts with what `kvpulse summary --json` says of the same run."""
    counted = accounts["per_kind"]
    per_kind = {
        kind: {
            "emitted": None if counted is None else counted.get(kind, 0),
            "stored": stored["per_kind"].get(kind, {}).get("stored", 0),
            "lost": stored["per_kind"].get(kind, {}).get("lost", 0),
        }
        for kind in sorted({*(counted or ()), *stored["per_kind"]})
    }
    adds_up = all(map(_adds_up, per_kind.values()))
    return DemoSummary(
        events_emitted=accounts["events_emitted"],
        events_stored=stored["stored"],
        events_lost=stored["lost"],
        per_kind=per_kind,
        requests=accounts["requests"],
        finished_by_reason=_ends_of_requests(accounts),
        rejected_by_reason=accounts["rejected_by_reason"],
        preemptions=accounts["preemptions"],
        prefix_hit_tokens=accounts["prefix_hit_tokens"],
        cancelled=accounts["cancelled"],
        seconds_with_pool_wait=stored["seconds_with_pool_wait"],
        audits_passed=stored["audits_passed"],
        audits_failed=stored["audits_failed"],
        ledger_balanced=stored["ledger_balanced"] and adds_up,
        active_blocks_at_end=stored["active_blocks_at_end"],
        leaked_blocks=stored["leaked_blocks"],
        refused_frees=stored["refused_frees"],
        injected=list(injected),
        engine_crashed=counted is None,
    )


def in_words(summary: DemoSummary) -> list[str]:
    """Return the summary as people read it."""
    lines = [
        f"events: {_or_unknown(summary.events_emitted)} emitted, {summary.events_stored} stored, "
        f"{summary.events_lost} lost",
        f"audits: {summary.audits_passed} passed, {summary.audits_failed} failed",
        f"requests: {summary.requests} ({_counts(summary.finished_by_reason)})",
        f"refused: {_counts(summary.rejected_by_reason) or 'none'}",
        f"preemptions: {summary.preemptions}; tokens found in the prefix cache: "
        f"{_or_unknown(summary.prefix_hit_tokens)}; seconds with a wait for blocks: "
        f"{summary.seconds_with_pool_wait}",
        f"active blocks at the end: {summary.active_blocks_at_end}",
    ]
    lines += _leaks_in_words(summary)
    if summary.refused_frees:
        lines.append(f"DOUBLE FREE: the pool refused {summary.refused_frees} frees of blocks")
    lines += [f"made to go wrong: {fault}" for fault in summary.injected]
    return lines


def _leaks_in_words(summary: DemoSummary) -> list[str]:
    blocks_of: dict[int | None, list[int]] = {}
    for leak in summary.leaked_blocks:
        blocks_of.setdefault(leak["owner"], []).append(leak["block"])
    unseen = blocks_of.pop(None, None)  # the owner ended in a gap
    lines = [
        f"LEAK: sequence {owner} ended and kept blocks {_listed(blocks)}"
        for owner, blocks in sorted(blocks_of.items(), key=lambda item: item[0] or 0)
    ]
    if unseen:
        lines.append(f"LEAK: blocks of an owner unknown, before a gap: {_listed(unseen)}")
    return lines


def _ends_of_requests(accounts: Mapping[str, Any]) -> dict[str, int]:
    """Return the ends of sequences by reason without those of further samples."""
    forks = accounts.get("forks_finished_by_reason", {})
    ends = {
        reason: count - forks.get(reason, 0)
        for reason, count in accounts["finished_by_reason"].items()
    }
    return {reason: count for reason, count in ends.items() if count}


def _adds_up(count: Mapping[str, int | None]) -> bool:
    """Whether all that was emitted is accounted for, as far as it is known."""
    emitted, stored, lost = count["emitted"], count["stored"], count["lost"]
    return emitted is None or emitted == (stored or 0) + (lost or 0)


def _or_unknown(number: int | None) -> str:
    return "an unknown number" if number is None else str(number)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _listed(blocks: list[int]) -> str:
    """Return ids in order, neighbours as a range."""
    runs: list[list[int]] = []
    for block in sorted(blocks):
        if runs and runs[-1][1] == block - 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
