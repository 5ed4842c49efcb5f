"""Do the engine's own books add up, and does everything come back?"""

from collections.abc import Sequence
from typing import Final

from agent.pool_usage import LeakReport, leak_report
from agent.triage.causes import POOL
from agent.triage.evidence import at_end, counted, named, over, since
from agent.triage.facts import Facts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import AT_ONCE, SOON, Action, Confidence, Evidence, Finding, Verdict
from kvpulse.events import UNKNOWN_OWNER

OF_THE_POOL: Final = frozenset(
    {
        *(Verdict.POOL_EXHAUSTED, Verdict.PREEMPTION_THRASH, Verdict.HEAD_OF_LINE),
        *(Verdict.LIVELOCK, Verdict.TRAFFIC_SHIFT, Verdict.UNKNOWN),
    }
)


def pool_leak(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Blocks are active although the sequences that held them have ended."""
    leaks = facts.books.leaks
    if not leaks:
        return None
    report = leak_report(leaks, cached_blocks=facts.pool.cached if facts.pool else None)
    blocks = sorted({leak.block for leak in leaks})
    owners = sorted({leak.owner for leak in leaks} - {UNKNOWN_OWNER})
    share = len(blocks) / facts.pool.total if facts.pool and facts.pool.total else None
    return Finding(
        verdict=Verdict.POOL_LEAK,
        action=Action.FIX_CODE,
        confidence=Confidence.HIGH,
        impact=facts.held_up(*POOL) + (facts.queue.live * share if facts.queue and share else 0.0),
        opens_after_seconds=SOON,
        summary=_summary(report, share),
        advice="find the path by which these sequences ended without freeing; a restart gives the"
        " blocks back for now, more capacity only feeds the leak",
        evidence=_evidence(facts, blocks, owners, report, share),
        explains=OF_THE_POOL,
    )


def pool_leak_by_bound(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """More blocks are held than those who run can own, of an engine that tells no owners."""
    bound = facts.books.beyond_bound
    if bound is None or bound.no_proof:
        return None
    total = facts.pool.total if facts.pool is not None else None
    part = "" if not total else f" = {bound.most / total:.0%}"
    text = (
        f"{counted(bound.running, 'request')} can own at most {bound.most} blocks{part},"
        f" {bound.held} are held"
    )
    return Finding(
        verdict=Verdict.POOL_LEAK,
        action=Action.FIX_CODE,
        confidence=Confidence.HIGH,
        impact=float(bound.running) * (bound.held - bound.most) / max(1, total or bound.held),
        opens_after_seconds=SOON,
        summary=text,
        advice="find the path by which requests end without freeing (aborts and transfers first);"
        " a restart gives the blocks back for now, more capacity only feeds the leak",
        evidence=(
            at_end(facts, "held_blocks", bound.held, "blocks", text),
            at_end(
                facts,
                "blocks_beyond_bound",
                bound.held - bound.most,
                "blocks",
                f"at least {counted(bound.held - bound.most, 'block')} belong to nobody that runs",
            ),
            over(
                facts,
                "held_change_blocks",
                bound.held - bound.first_held,
                "blocks",
                f"{bound.first_held} blocks were held at the start of the window",
            ),
        ),
        explains=OF_THE_POOL,
    )


def _summary(report: LeakReport, share: float | None) -> str:
    part = "" if share is None else f"; {share:.1%} of the pool is lost"
    return report.sentence + part


def _evidence(
    facts: Facts,
    blocks: Sequence[int],
    owners: Sequence[int],
    report: LeakReport,
    share: float | None,
) -> tuple[Evidence, ...]:
    first_ns = min(each.since_ns for each in report.owners)
    told = [
        at_end(
            facts,
            "leaked_blocks",
            list(blocks),
            "block ids",
            f"{counted(len(blocks), 'block')} leaked: {named(list(blocks))}",
        ),
        at_end(
            facts,
            "leaking_owners",
            list(owners),
            "sequence numbers",
            f"held by {counted(len(owners), 'ended sequence')}: {named(list(owners))}",
        ),
        Evidence(
            "leaking_since_seconds",
            round((facts.end_ns - first_ns) / 1e9, 1),
            "seconds",
            f"the first of them ended {(facts.end_ns - first_ns) / 1e9:.0f} s ago",
            first_ns,
            facts.end_ns,
        ),
    ]
    unnamed = len({leak.block for leak in facts.books.leaks if leak.owner == UNKNOWN_OWNER})
    if unnamed:
        text = f"whose {counted(unnamed, 'block')} of them were is lost with events"
        told.append(at_end(facts, "blocks_of_unknown_owners", unnamed, "blocks", text))
    if share is not None:
        text = f"{share:.1%} of the pool"
        told.append(at_end(facts, "leaked_ratio", round(share, 4), "ratio", text))
    return tuple(told)


def ledger_broken(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """A law did not hold, an audit disagreed, or blocks were freed twice."""
    books = facts.books
    if not books.refused_frees and not books.broken_laws:
        return None
    seconds = min(books.memory_seconds, (facts.end_ns - facts.run.started_at_ns) / 1e9)
    told = []
    if books.refused_frees:
        text = f"{counted(books.refused_frees, 'block')} freed that nobody held (freed twice)"
        told.append(
            since(facts, seconds, "refused_frees", books.refused_frees, "blocks", text),
        )
    if books.broken_laws:
        latest = books.broken_laws[-1]
        text = f"{counted(len(books.broken_laws), 'law')} broken, the latest {latest.text}"
        told.append(
            since(facts, seconds, "broken_laws", [x.text for x in books.broken_laws], "laws", text)
        )
    return Finding(
        verdict=Verdict.LEDGER_BROKEN,
        action=Action.FIX_CODE,
        confidence=Confidence.HIGH,
        impact=0.0,
        opens_after_seconds=AT_ONCE,
        summary=f"the pool's books do not add up: {'; '.join(each.text for each in told)}",
        advice="do not trust reference counts until it is found who frees twice or frees what it"
        " does not hold; restart if answers may have been mixed up",
        evidence=tuple(told),
        explains=frozenset({Verdict.UNKNOWN}),
    )
