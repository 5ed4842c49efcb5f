"""How the time to first token of each request of a window splits, out of the stored requests."""

import json
from typing import Final

from sqlalchemy import Connection, Row, text

from agent.baselines.first_tokens import POOL_BEHIND, FirstTokens, WaitedRequest
from agent.baselines.gather import Grid
from agent.baselines.window_series import NS

LONGEST_TTFT_NS: Final = 3600 * NS  # only an index by arrival leads to them


def read_first_tokens(connection: Connection, run_key: int, grid: Grid) -> FirstTokens:
    """Return the requests of a run that had their first token in a window.

    Those that cannot be split, because a gap lies in their wait, are left out; whoever counts first
    tokens by another way sees it.
    """
    query = text(
        "SELECT arrived_at_ns, admitted_at_ns, first_token_at_ns, wait_pool_ns, wait_scheduler_ns,"
        " wait_quota_ns, wait_transfer_ns, wait_ns FROM requests WHERE run_key=:key AND parent=0"
        " AND arrived_at_ns>=:earliest AND arrived_at_ns<:end"
        " AND first_token_at_ns>=:start AND first_token_at_ns<:end"
        " AND admitted_at_ns IS NOT NULL AND wait_pool_ns IS NOT NULL"
    )
    bind = {
        "key": run_key,
        "earliest": grid.start_ns - LONGEST_TTFT_NS,
        "start": grid.start_ns,
        "end": grid.end_ns,
    }
    return FirstTokens.of(_waited(row) for row in connection.execute(query, bind))


def _waited(row: Row[tuple[object, ...]]) -> WaitedRequest:
    by_cause = json.loads(row.wait_ns) if row.wait_pool_ns and row.wait_ns else {}
    return WaitedRequest(
        arrived=row.arrived_at_ns,
        admitted=row.admitted_at_ns,
        first_token=row.first_token_at_ns,
        pool_class=row.wait_pool_ns,
        pool_behind=by_cause.get(POOL_BEHIND, 0),
        scheduler=row.wait_scheduler_ns,
        quota=row.wait_quota_ns,
        transfer=row.wait_transfer_ns,
    )
