"""The live state and the readiness as plain documents for JSON."""

from agent.gpus import GpuFigure
from agent.http.health import Readiness, judge
from agent.ledger.delta import BrokenLaw, LiveState
from agent.live_view import LiveEngine, LiveSnapshot
from agent.metrics.engine_samples import is_fresh, source_age_seconds
from agent.metrics.gpu import is_current
from agent.pool_usage import known_owner, leak_report
from agent.price import Price
from agent.rollups.rebucket import NS_PER_SECOND

MAX_LISTED = 100  # leaks and holds listed one by one; their number is always told

Document = dict[str, object]

WHY_NOT = "the engine is known by its metrics page, which does not tell it"
NOT_ON_A_PAGE = dict.fromkeys(
    ("waits", "oldest_wait_seconds", "head_of_line", "host_blocks", "capacity", "costs", "ledger"),
    WHY_NOT,
)


def readiness_document(readiness: Readiness) -> Document:
    """Say whether the agent is ready and, if not, why."""
    problems = [
        {"subject": p.subject, "problem": p.text, "since_seconds": p.since_seconds}
        for p in readiness.problems
    ]
    return {"ready": readiness.is_ready, "problems": problems}


def status_document(snapshot: LiveSnapshot, now_ns: int, price: Price | None = None) -> Document:
    """Describe the agent and every engine it knows."""
    return {
        "readiness": readiness_document(judge(snapshot, now_ns)),
        "agent": {
            "started_at_ns": snapshot.started_at_ns,
            "journal": snapshot.journal,
            "store": snapshot.store_label,
            "store_writable": snapshot.store_writable,
            "last_commit_at_ns": snapshot.last_commit_at_ns,
            "commits": snapshot.commits,
            "commit_seconds": snapshot.commit_seconds,
        },
        "gpus": _gpus(snapshot, now_ns),
        "engines": [_engine(engine, now_ns, price) for engine in snapshot.engines.values()],
    }


def _gpus(snapshot: LiveSnapshot, now_ns: int) -> Document:
    reading = snapshot.gpus
    if reading is None:
        return {"available": False, "reason": "nobody looks: gpus = off, or not yet"}
    age = max(0, now_ns - reading.read_at_ns) / NS_PER_SECOND
    current = is_current(reading, now_ns)
    reason = reading.problem or (None if current else f"NVML has not answered for {age:.0f} s")
    return {
        "available": current,
        "reason": reason,
        "age_seconds": age,
        "gpus": [
            {
                "gpu": gpu.gpu,
                "name": gpu.name,
                **{figure.value: gpu.figures.get(figure) for figure in GpuFigure},
                "not_available": {figure.value: why for figure, why in gpu.missing.items()},
            }
            for gpu in reading.gpus
        ],
    }


def _engine(engine: LiveEngine, now_ns: int, price: Price | None) -> Document:
    live = engine.live
    return {
        "engine": engine.engine,
        "run_id": engine.run_id,
        "state": engine.state.value,
        "fresh": is_fresh(engine, now_ns),
        "age_seconds": source_age_seconds(engine, now_ns),
        "lag_seconds": engine.lag_seconds,
        "behind_records": engine.behind_records,
        "started_at_ns": engine.started_at_ns,
        "last_event_at_ns": engine.last_event_at_ns,
        "fingerprint": dict(engine.fingerprint),
        "gauges": dict(live.gauges),
        "counters": dict(live.counters),
        "labelled": {family: dict(values) for family, values in live.labelled.items()},
        **_of_its_source(engine, price),
    }


def _of_its_source(engine: LiveEngine, price: Price | None) -> Document:
    return _of_a_journal(engine, price) if engine.scrape_seconds is None else _of_a_page(engine)


def _of_a_page(engine: LiveEngine) -> Document:
    """Say what a metrics page cannot tell, instead of a 0 for it."""
    return {
        "source": {
            "kind": "metrics page",
            "page": engine.fingerprint.get("page"),
            "seconds_between_looks": engine.scrape_seconds,
        },
        "not_available": NOT_ON_A_PAGE,
    }


def _of_a_journal(engine: LiveEngine, price: Price | None) -> Document:
    live = engine.live
    return {
        "source": {"kind": "journal"},
        "waits": _waits(live),
        "oldest_wait_seconds": (
            None
            if live.waiting_since_ns is None
            else (live.t_ns - live.waiting_since_ns) / NS_PER_SECOND
        ),
        "head_of_line": _head_of_line(live),
        "host_blocks": _host(live),
        "capacity": _capacity(engine),
        "costs": _costs(live, price),
        "ledger": _ledger(live),
    }


def _capacity(engine: LiveEngine) -> Document:
    left = engine.exhaustion
    return {
        "still_needed_blocks": engine.live.gauges.get("blocks_needed"),
        "largest_still_needed_blocks": engine.live.largest_blocks_needed,
        "exhaustion_known": left is not None,
        "exhaustion_seconds": None if left is None else [left.least_seconds, left.most_seconds],
    }


def _costs(live: LiveState, price: Price | None) -> Document:
    if price is None:
        return {"known": False, "reason": "no price: set price_per_gpu_hour"}
    blocks = live.shape.total_blocks
    paid = live.labelled.get("tenant_block_ns", {})
    return {
        "known": True,
        "currency": price.currency,
        "block_second": price.of_block_second(blocks),
        "tenants": {name: price.of(ns / NS_PER_SECOND, blocks) for name, ns in paid.items()},
    }


def _head_of_line(live: LiveState) -> Document | None:
    head = live.head_of_line
    if head is None:
        return None
    return {
        "sequence": head.owner,
        "needed_blocks": head.needed_blocks,
        "available_blocks": head.available_blocks,
        "num_behind": head.num_behind,
        "num_runnable": head.num_runnable,
        "runnable_blocks": head.runnable_blocks,
        "waited_seconds": head.waited_ns / NS_PER_SECOND,
        "booked_seconds": head.booked_ns / NS_PER_SECOND,
        "text": head.sentence,
    }


def _host(live: LiveState) -> Document | None:
    if live.host_total_blocks is None:
        return None
    held = live.host_unreleased
    return {
        "total": live.host_total_blocks,
        "active": live.host_active_blocks,
        "held_by_ended": None if held is None else sum(held.values()),
    }


def _waits(live: LiveState) -> Document:
    return {
        cause: {
            "waiting": wait.num_waiting,
            "oldest_of_cause_seconds": (
                None
                if wait.oldest_since_ns is None
                else (live.t_ns - wait.oldest_since_ns) / NS_PER_SECOND
            ),
        }
        for cause, wait in live.waits.items()
    }


def _broken_law(broken: BrokenLaw, live: LiveState) -> Document:
    named = broken.evidence.named
    return {
        "law": broken.law,
        "opened_at_ns": broken.opened_ns + live.wall_offset_ns,
        "expected": broken.evidence.expected,
        "found": broken.evidence.found,
        "blocks": list(named.blocks),
        "num_blocks": named.num_blocks,
        "owners": [known_owner(owner) for owner in named.owners],
        "num_owners": named.num_owners,
    }


def _ledger(live: LiveState) -> Document:
    return {
        "balanced": live.balanced,
        "audits_passed": live.audits_passed,
        "audits_failed": live.audits_failed,
        "laws_failed": live.laws_failed,
        "last_failures": [{"law": f.law, "detail": f.detail} for f in live.last_failures],
        "broken_laws": [_broken_law(broken, live) for broken in live.broken_laws],
        "events_stored": sum(live.stored),
        "events_lost": sum(live.lost),
        "unknown_records": live.unknown,
        "gaps": live.num_gaps,
        "refused_frees": live.refused_frees,
        "num_leaked": len(live.leaks),
        "leak_report": leak_report(live.leaks, cached_blocks=live.gauges["cached_blocks"]).sentence,
        "leaked": [
            {"block": k.block, "owner": known_owner(k.owner)} for k in live.leaks[:MAX_LISTED]
        ],
        "num_held": sum(len(hold.blocks) for hold in live.held),
        "held": [
            {"owner": h.owner, "reason": h.reason, "num_blocks": len(h.blocks)}
            for h in live.held[:MAX_LISTED]
        ],
    }
