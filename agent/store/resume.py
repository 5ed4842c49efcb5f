"""What a restarted agent takes out of the store to go on where it stopped."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from agent.ledger.delta import RunShape, Snapshot
from agent.reads.models import RunState
from agent.store.rows import COUNTS
from kvpulse.stream_values import Position


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the store knows it: where reading goes on, and the newest whole state."""

    run_key: int
    state: RunState
    position: Position
    shape: RunShape
    wall_offset_ns: int
    started_at_ns: int
    snapshot: Snapshot | None
    chunks: tuple[bytes, ...]  # those after the snapshot, in order


def load_run(connection: Connection, engine: str, run_id: str) -> StoredRun | None:
    """Return a run by its names, with its newest snapshot and the chunks after it."""
    query = text(
        "SELECT runs.*, positions.segment, positions.record, positions.seq, positions.counts,"
        " positions.lost FROM runs JOIN positions ON positions.run_key = runs.run_key"
        " WHERE engine=:engine AND run_id=:run_id"
    )
    row = connection.execute(query, {"engine": engine, "run_id": run_id}).mappings().first()
    if row is None:
        return None
    key = int(row["run_key"])
    snapshot = _newest_snapshot(connection, key, row["wall_offset_ns"])
    after = snapshot.seq if snapshot else 0
    chunks = connection.execute(
        text("SELECT data FROM chunks WHERE run_key=:key AND seq0>=:after ORDER BY seq0"),
        {"key": key, "after": after},
    )
    return StoredRun(
        run_key=key,
        state=RunState(row["state"]),
        position=Position(
            segment=row["segment"],
            record=row["record"],
            seq=row["seq"],
            counts=COUNTS.unpack(bytes(row["counts"])),
            lost=COUNTS.unpack(bytes(row["lost"])),
        ),
        shape=RunShape(row["total_blocks"], row["host_blocks"], row["block_size"]),
        wall_offset_ns=row["wall_offset_ns"],
        started_at_ns=row["started_at_ns"],
        snapshot=snapshot,
        chunks=tuple(bytes(chunk.data) for chunk in chunks),
    )


def _newest_snapshot(connection: Connection, key: int, offset: int) -> Snapshot | None:
    row = connection.execute(
        text(
            "SELECT seq, at_ns, map_data, state_data FROM snapshots WHERE run_key=:key"
            " AND state_data IS NOT NULL ORDER BY seq DESC LIMIT 1"
        ),
        {"key": key},
    ).first()
    if row is None:
        return None
    # How many events came before it is in the state itself.
    return Snapshot(row.seq, row.at_ns - offset, 0, bytes(row.map_data), bytes(row.state_data))
