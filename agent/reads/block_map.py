"""The block map at any moment: the last snapshot before it, then the chunks up to it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, text

from agent.block_map import BlockMap, replay_map


class _Snapshot(NamedTuple):
    seq: int
    at_ns: int
    data: bytes
    detail_gone: bool  # the chunks that follow it were pruned


def read_block_map(connection: Connection, run_key: int, at_ns: int | None) -> BlockMap | None:
    """Return the map at a moment in wall time; None where the run has no snapshot."""
    run = connection.execute(
        text("SELECT wall_offset_ns, last_event_at_ns FROM runs WHERE run_key=:key"),
        {"key": run_key},
    ).first()
    if run is None or run.last_event_at_ns is None:
        return None
    # Nothing is known to have changed since the last event.
    wanted = run.last_event_at_ns if at_ns is None else min(at_ns, run.last_event_at_ns)
    snapshot = _nearest(connection, run_key, wanted)
    if snapshot is None:
        return None
    chunks = _chunks(connection, run_key, snapshot, wanted)
    until = max(wanted, snapshot.at_ns) if chunks is not None else snapshot.at_ns
    found = replay_map(snapshot.data, chunks or (), at_ns=until - run.wall_offset_ns)
    if _has_gap(connection, run_key, snapshot, until):
        found = replace(found, exact=False)
    return _in_wall_time(connection, run_key, found, wanted, until - wanted, run.wall_offset_ns)


def _has_gap(connection: Connection, run_key: int, snapshot: _Snapshot, at_ns: int) -> bool:
    query = text(
        "SELECT COUNT(*) FROM gaps WHERE run_key=:key AND seq1>seq0 AND seq1>:seq"
        " AND start_at_ns<=:at"
    )
    bind = {"key": run_key, "seq": snapshot.seq, "at": at_ns}
    return bool(connection.execute(query, bind).scalar_one())


def _in_wall_time(
    connection: Connection, run_key: int, found: BlockMap, wanted: int, late_ns: int, offset: int
) -> BlockMap:
    return replace(
        found,
        at_ns=wanted,
        age_ns=-late_ns,
        exact=found.exact and late_ns == 0,
        since_ns=np.where(found.since_ns > 0, found.since_ns + offset, 0),
        tenants=_strings(connection, run_key),
    )


def _nearest(connection: Connection, run_key: int, at_ns: int) -> _Snapshot | None:
    """Return the last snapshot before a moment, else the first after it."""
    for where, order in (("at_ns<=:at", "DESC"), ("at_ns>:at", "ASC")):
        query = text(
            "SELECT seq, at_ns, map_data, detail_gone FROM snapshots WHERE run_key=:key"
            f" AND {where} ORDER BY at_ns {order}, seq {order} LIMIT 1"
        )
        row = connection.execute(query, {"key": run_key, "at": at_ns}).first()
        if row is not None:
            return _Snapshot(row.seq, row.at_ns, bytes(row.map_data), bool(row.detail_gone))
    return None


def _chunks(
    connection: Connection, run_key: int, snapshot: _Snapshot, at_ns: int
) -> Iterator[bytes] | None:
    """Return the chunks between a snapshot and a moment; None where they are gone."""
    if snapshot.detail_gone and snapshot.at_ns < at_ns:
        return None
    bind = {"key": run_key, "seq": snapshot.seq, "at": at_ns}
    oldest = connection.execute(
        text("SELECT MIN(seq0) FROM chunks WHERE run_key=:key"), {"key": run_key}
    ).scalar()
    newest = connection.execute(
        text("SELECT MAX(seq0) FROM chunks WHERE run_key=:key AND start_at_ns<=:at"), bind
    ).scalar()
    is_past_detail = newest is None or (oldest is not None and oldest > snapshot.seq)
    if is_past_detail and snapshot.at_ns < at_ns:
        return None
    rows = connection.execute(
        text(
            "SELECT data FROM chunks WHERE run_key=:key AND seq0>=:seq AND start_at_ns<=:at"
            " ORDER BY seq0"
        ),
        bind,
    )
    return (bytes(row.data) for row in rows)


def _strings(connection: Connection, run_key: int) -> dict[int, str]:
    rows = connection.execute(
        text("SELECT string_id, value FROM strings WHERE run_key=:key"), {"key": run_key}
    )
    return {row.string_id: row.value for row in rows}
