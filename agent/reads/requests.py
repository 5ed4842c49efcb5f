"""Sequences: rows of a window, and one sequence by its number."""

import json
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, text

from agent.reads.models import RequestOrder, RequestRow, RequestState, WaitingSequence
from agent.reads.tiers import Window

ORDERS: Final = {
    RequestOrder.STARTED: "arrived_at_ns",
    RequestOrder.WAIT: (
        "COALESCE(wait_pool_ns,0)+COALESCE(wait_scheduler_ns,0)+COALESCE(wait_quota_ns,0)"
        "+COALESCE(wait_transfer_ns,0)"
    ),
    RequestOrder.BLOCK_SECONDS: "COALESCE(block_seconds,0)",
    RequestOrder.BLOCKS: "COALESCE(peak_blocks,0)",
    RequestOrder.PREEMPTIONS: "COALESCE(preemptions,0)",
}

MOST_WAITING: Final = 2_000


def read_requests(
    connection: Connection,
    run_key: int,
    window: Window,
    *,
    state: RequestState | None,
    tenant: str | None,
    order: RequestOrder,
) -> list[RequestRow]:
    """Return sequences alive in a window, sorted; `max_points` bounds how many."""
    # The end of a sequence still live is open; an arrival lost in a gap is known to lie before.
    where = (
        "run_key=:key AND (arrived_at_ns IS NULL OR arrived_at_ns<:end)"
        " AND (ended_at_ns IS NULL OR ended_at_ns>=:start)"
    )
    bind: dict[str, object] = {
        "key": run_key,
        "start": window.start_ns,
        "end": window.end_ns,
        "limit": window.max_points,
    }
    if state is not None:
        where += " AND state=:state"
        bind["state"] = state.value
    if tenant is not None:
        where += " AND tenant=:tenant"
        bind["tenant"] = tenant
    query = text(
        f"SELECT * FROM requests WHERE {where} ORDER BY {ORDERS[order]} DESC, owner DESC"
        " LIMIT :limit"
    )
    return [_request_row(row) for row in connection.execute(query, bind).mappings()]


def read_waiting(connection: Connection, run_key: int) -> list[WaitingSequence]:
    """Return the live sequences that wait, preempted ones too, in the order of their numbers.

    They are found by having no end, so that the cost does not grow with a run's age.
    """
    query = text(
        "SELECT owner, needed_blocks, prompt_tokens FROM requests WHERE run_key=:key"
        " AND ended_at_ns IS NULL AND state IN ('waiting', 'preempted') ORDER BY owner LIMIT :most"
    )
    rows = connection.execute(query, {"key": run_key, "most": MOST_WAITING})
    return [WaitingSequence(*row) for row in rows]


def read_request(connection: Connection, run_key: int, owner: int) -> RequestRow | None:
    """Return one sequence."""
    query = text("SELECT * FROM requests WHERE run_key=:key AND owner=:owner")
    row = connection.execute(query, {"key": run_key, "owner": owner}).mappings().first()
    return _request_row(row) if row else None


def read_mean_prompt(connection: Connection, run_key: int, window: Window) -> float | None:
    """Return the mean prompt of the requests that arrived in a window."""
    query = text(
        "SELECT AVG(prompt_tokens) FROM requests WHERE run_key=:key AND arrived_at_ns>=:start"
        " AND arrived_at_ns<:end AND parent=0"
    )
    bind = {"key": run_key, "start": window.start_ns, "end": window.end_ns}
    mean = connection.execute(query, bind).scalar()
    return None if mean is None else float(mean)


SAME: Final = (
    *("owner", "parent", "arrived_at_ns", "admitted_at_ns", "first_token_at_ns", "ended_at_ns"),
    *("deadline_at_ns", "end_reason", "reject_reason", "prompt_tokens", "max_tokens"),
    *("asked_max_tokens", "output_tokens", "logical_blocks", "physical_blocks", "shared_within"),
    *("shared_across", "peak_blocks", "filled_slots", "block_seconds", "wait_pool_ns"),
    *("wait_scheduler_ns", "wait_quota_ns", "wait_transfer_ns", "wait_after_preempt_ns"),
    *("preemptions", "recomputed_tokens", "prefix_hit_tokens", "time_to_first_block_ns"),
    *("priority", "tier", "retry", "frontend_ns", "wait_cause", "blocker", "blocked_others_ns"),
    *("needed_blocks", "tokens_lost", "tokens_found", "blocks_kept", "swaps", "host_blocks"),
)


def _request_row(row: RowMapping) -> RequestRow:
    values: dict[str, Any] = {name: row[name] for name in SAME}
    failures: dict[str, int] = json.loads(row["alloc_failures"])
    return RequestRow(
        **values,
        tenant=row["tenant"] or "",
        state=_state(row["state"]),
        wait_ns=json.loads(row["wait_ns"]) if row["wait_ns"] else {},
        preempted_by=json.loads(row["preempted_by"]),
        alloc_failures=sum(failures.values()),
        alloc_failures_by_cause=failures,
        spans_gap=bool(row["spans_gap"]),
    )


def _state(text_found: str) -> RequestState:
    # A later agent may write a state that this version does not know.
    known = RequestState.__members__.values()
    return RequestState(text_found) if text_found in known else RequestState.UNKNOWN
