"""What a run's pool and queue look like now: usage, leaks, the head of the line, tenants."""

import json
from typing import Any

from sqlalchemy import Connection, text

from agent.head_of_line import HeadOfLine, Waiter, head_of_line, needed_blocks
from agent.kv_groups import StatedGroups
from agent.pool_usage import LeakReport, PoolUsage, leak_report
from agent.reads.health import read_leaks
from agent.reads.models import TenantRow
from agent.reads.tiers import Window

_NOW = (
    "total_blocks, active_blocks, cached_blocks, free_blocks, logical_blocks, filled_slots,"
    " filled_of_blocks"
)


def read_usage(connection: Connection, run_key: int) -> PoolUsage | None:
    """Return the pool as it was last; None before anything was stored."""
    block_size = _block_size(connection, run_key)
    row = _newest_row(connection, run_key, _NOW)
    if block_size is None or row is None or row["active_blocks"] is None:
        return None
    if row["filled_slots"] is not None:
        return PoolUsage(block_size=block_size, **row)
    row["filled_slots"] = _prompt_slots(connection, run_key, block_size)
    row["filled_of_blocks"] = row["active_blocks"] if row["filled_slots"] is not None else None
    return PoolUsage(block_size=block_size, at_least=True, **row)


def _prompt_slots(connection: Connection, run_key: int, block_size: int) -> int | None:
    """Return the slots that running sequences' prompts fill, where none shares with another."""
    # min() of two values is `LEAST` on Postgres; CASE is both.
    query = text(
        "SELECT SUM(CASE WHEN prompt_tokens < physical_blocks * :size THEN prompt_tokens"
        " ELSE physical_blocks * :size END) AS filled,"
        " SUM(COALESCE(shared_within, 0) + COALESCE(shared_across, 0)) AS shared"
        " FROM requests WHERE run_key=:key AND ended_at_ns IS NULL AND physical_blocks > 0"
    )
    row = connection.execute(query, {"key": run_key, "size": block_size}).first()
    if row is None or row.filled is None or row.shared:
        return None
    return int(row.filled)


def read_leak_report(connection: Connection, run_key: int) -> LeakReport:
    """Return what is leaked now, by owner."""
    row = _newest_row(connection, run_key, "cached_blocks")
    leaks = [leak for leak in read_leaks(connection, run_key) if leak.ended_at_ns is None]
    return leak_report(leaks, cached_blocks=row["cached_blocks"] if row else None)


def read_head_of_line(connection: Connection, run_key: int) -> HeadOfLine | None:
    """Return who is at the head of the line with others behind that could run; None: nobody."""
    block_size = _block_size(connection, run_key)
    row = _newest_row(connection, run_key, "free_blocks, cached_blocks")
    if block_size is None or row is None:
        return None
    waiting = connection.execute(
        text(
            "SELECT owner, arrived_at_ns, wait_cause, blocker, needed_blocks, prompt_tokens,"
            " blocked_others_ns FROM requests WHERE run_key=:key AND ended_at_ns IS NULL"
            " AND wait_cause IS NOT NULL"
        ),
        {"key": run_key},
    ).all()
    now_ns, stated = connection.execute(
        text("SELECT last_event_at_ns, fingerprint FROM runs WHERE run_key=:key"), {"key": run_key}
    ).one()
    groups = StatedGroups.read(json.loads(stated))
    return head_of_line(
        [
            Waiter(
                owner=each.owner,
                arrived_ns=each.arrived_at_ns or 0,
                cause=each.wait_cause,
                blocker=each.blocker or 0,
                needed_blocks=needed_blocks(
                    each.needed_blocks, each.prompt_tokens, block_size, groups
                ),
            )
            for each in waiting
        ],
        available_blocks=(row["free_blocks"] or 0) + (row["cached_blocks"] or 0),
        booked_ns={each.owner: each.blocked_others_ns or 0 for each in waiting},
        now_ns=now_ns,
    )


def read_tenants(connection: Connection, run_key: int, window: Window) -> list[TenantRow]:
    """Return what each tenant's sequences alive in a window came to, the largest first."""
    sums = ", ".join(f"SUM({name}) AS {name}" for name in TenantRow.SUMS)
    query = text(
        "SELECT COALESCE(tenant, '') AS tenant, COUNT(*) AS num_sequences,"
        " SUM(CASE WHEN parent = 0 THEN 1 ELSE 0 END) AS num_requests,"
        " SUM(CASE WHEN parent = 0 THEN prompt_tokens END) AS prompt_tokens,"
        " SUM(CASE WHEN state = 'rejected' THEN 1 ELSE 0 END) AS num_rejected,"
        " SUM(CASE WHEN wait_cause = 'tenant_quota' THEN 1 ELSE 0 END) AS num_at_quota,"
        f" SUM(CASE WHEN ended_at_ns IS NULL THEN physical_blocks END) AS held_blocks, {sums}"
        " FROM requests WHERE run_key=:key AND (arrived_at_ns IS NULL OR arrived_at_ns<:end)"
        " AND (ended_at_ns IS NULL OR ended_at_ns>=:start) GROUP BY COALESCE(tenant, '')"
        " ORDER BY SUM(COALESCE(block_seconds, 0)) DESC, 1"
    )
    bind = {"key": run_key, "start": window.start_ns, "end": window.end_ns}
    rows = connection.execute(query, bind).mappings()
    return [TenantRow(**{name: _plain(value) for name, value in row.items()}) for row in rows]


def _plain(value: Any) -> Any:
    # Postgres sums integers to its exact decimals; floats add up in an order of the database's.
    if isinstance(value, float):
        return round(value, 6)
    return value if value is None or isinstance(value, str) else int(value)


def _block_size(connection: Connection, run_key: int) -> int | None:
    query = text("SELECT block_size FROM runs WHERE run_key=:key")
    found: int | None = connection.execute(query, {"key": run_key}).scalar()
    return found


def _newest_row(connection: Connection, run_key: int, columns: str) -> dict[str, Any] | None:
    query = text(
        f"SELECT {columns} FROM rollups WHERE run_key=:key AND tier_seconds=1"
        " ORDER BY at_ns DESC LIMIT 1"
    )
    row = connection.execute(query, {"key": run_key}).mappings().first()
    return dict(row) if row else None
