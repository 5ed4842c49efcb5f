"""`kvpulse summary`: what one run of an engine left in the store, and whether it adds up."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from agent.commands.exit_codes import ExitCode
from agent.config import load_config
from agent.errors import ConfigError
from agent.pool_usage import known_owner, leaker_words
from agent.reads.broken_laws import BrokenLaw
from agent.reads.models import RunRow
from agent.reads.reads import Reads, open_reads
from agent.scraped.errors import NeedsJournal
from agent.scraped.fingerprint import is_scraped, page_of
from kvpulse.events import UNKNOWN_OWNER

SECOND_NS: Final = 1_000_000_000
MOST_POINTS: Final = 10_000_000  # so that the tier of one second is read


@dataclass(frozen=True, slots=True)
class LeakedBlock:
    """A block that was never given back."""

    block: int
    owner: int | None  # None: it ended in a gap


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in numbers.

    Attributes:
        per_kind: Events of each kind: how many are stored, how many are known lost.
        ledger_balanced: Audits were held against the ledger, and neither one nor a law failed.
        active_blocks_at_end: None when no rollup says it.
        leaked_blocks: Blocks still active although their owner ended.
        broken_laws: Laws and audits that did not hold, those that do not now first.
        refused_frees: Blocks that were freed although nobody held them.
    """

    engine: str
    run_id: str
    state: str
    stored: int
    lost: int
    per_kind: dict[str, dict[str, int]]
    audits_passed: int
    audits_failed: int
    ledger_balanced: bool
    seconds_with_pool_wait: int
    active_blocks_at_end: int | None
    leaked_blocks: list[LeakedBlock]
    broken_laws: list[BrokenLaw]
    refused_frees: int

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, the ledger balances, no block leaked or was freed twice."""
        return self.ledger_balanced and not (self.lost or self.leaked_blocks or self.refused_frees)


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse summary`."""
    arguments = _parser().parse_args(argv)
    config = load_config({"store": arguments.store, "config": arguments.config}, os.environ)
    reads = open_reads(config.store)
    try:
        summary = summarize(reads, choose_run(reads, arguments.engine, arguments.run))
    finally:
        reads.close()
    print(json.dumps(asdict(summary)) if arguments.json else "\n".join(_in_words(summary)))
    return ExitCode.GOOD if summary.is_good else ExitCode.BAD_ANSWER


def summarize(reads: Reads, run: RunRow) -> RunSummary:
    """Read one run's totals, audits, waits and leaks."""
    end_ns = (run.last_event_at_ns or run.started_at_ns) + SECOND_NS
    names = ("wait_pool_ns", "active_blocks", "refused_frees")
    series = reads.series(run.run_key, names, run.started_at_ns - SECOND_NS, end_ns, MOST_POINTS)
    active = series.values["active_blocks"]
    active = active[~np.isnan(active)]
    totals = reads.totals(run.run_key)
    laws = reads.broken_laws(run.run_key)
    leaks = [leak for leak in reads.leaks(run.run_key) if leak.ended_at_ns is None]
    return RunSummary(
        engine=run.engine,
        run_id=run.run_id,
        state=run.state.value,
        stored=run.events_stored,
        lost=run.events_lost,
        per_kind={kind: {"stored": n.stored, "lost": n.lost} for kind, n in totals.items()},
        audits_passed=run.audits_passed,
        audits_failed=run.audits_failed,
        ledger_balanced=run.audits_passed > 0 == run.audits_failed and not laws,
        seconds_with_pool_wait=int((series.values["wait_pool_ns"] > 0).sum()),
        active_blocks_at_end=int(active[-1]) if len(active) else None,
        leaked_blocks=[LeakedBlock(leak.block, known_owner(leak.owner)) for leak in leaks],
        broken_laws=laws,
        refused_frees=int(np.nansum(series.values["refused_frees"])),
    )


def choose_run(reads: Reads, engine: str | None, run_id: str | None) -> RunRow:
    """Return the run that the user means.

    Raises:
        ConfigError: There is no such engine or run, or more than one engine to choose from.
        NeedsJournal: The run is known by its engine's metrics page alone.
    """
    names = [row.engine for row in reads.engines()]
    if engine is None and len(names) == 1:
        engine = names[0]
    runs = reads.runs(engine) if engine in names and engine is not None else []
    for run in runs:
        if run_id in (None, run.run_id):
            if is_scraped(run.fingerprint):
                raise NeedsJournal(run.engine, page_of(run.fingerprint))
            return run
    if not runs:
        accepted = f"one of the store's engines: {', '.join(names) or 'none yet'}"
        raise ConfigError("--engine", engine or "nothing", accepted)
    newest = ", ".join(run.run_id for run in runs[:3])
    raise ConfigError("--run", run_id or "nothing", f"a run of {engine}, such as {newest}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse summary",
        description=__doc__,
        epilog="Exit code 1: events were lost, an audit or a law failed, blocks leaked or "
        "were freed twice.",
    )
    parser.add_argument("--engine", help="needed where the store holds more than one")
    parser.add_argument("--run", metavar="ID", help="default: the engine's newest run")
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _in_words(summary: RunSummary) -> list[str]:
    lines = [
        f"{summary.engine} {summary.run_id} ({summary.state})",
        f"events: {summary.stored} stored, {summary.lost} lost",
        f"audits: {summary.audits_passed} passed, {summary.audits_failed} failed",
        f"seconds in which somebody waited for blocks: {summary.seconds_with_pool_wait}",
    ]
    if summary.active_blocks_at_end is not None:
        lines.append(f"active blocks at the end: {summary.active_blocks_at_end}")
    lines += [_law_in_words(broken) for broken in summary.broken_laws]
    by_owner: dict[int, list[int]] = {}
    for leak in summary.leaked_blocks:
        owner = UNKNOWN_OWNER if leak.owner is None else leak.owner
        by_owner.setdefault(owner, []).append(leak.block)
    for owner, blocks in by_owner.items():
        who = leaker_words(owner)
        lines.append(f"leaked by {who}: blocks {', '.join(map(str, sorted(blocks)))}")
    if summary.refused_frees:
        lines.append(f"freed although nobody held them: {summary.refused_frees} blocks")
    return lines


def _law_in_words(broken: BrokenLaw) -> str:
    if broken.closed_at_ns is None:
        return f"broken law {broken.sentence}; since {_utc(broken.opened_at_ns)}"
    times = f"{_utc(broken.opened_at_ns)} to {_utc(broken.closed_at_ns)}"
    return f"a law was broken, {broken.sentence}; {times}"


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / SECOND_NS, UTC).isoformat(timespec="milliseconds")
