"""Dropping whole days of detail on Postgres: chunks, and the maps that are left of them.

A day of chunks goes as a whole where each stretch that has a part in it may go: none is pinned, and
none is needed to resume a run. What such a stretch has in the days beside it, and nothing else, is
deleted row by row. The books are kept in the same transaction.
"""

from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from agent.reads.models import RunState
from agent.store.partition_drop import (
    FEWEST_PARTITIONS,
    detach,
    lock_writers_out,
    partitions_of_table,
)
from agent.store.partitions import Partition
from agent.store.pins import NO_PINS, Pins

ALL_TIME: Final = 1 << 62


class Gone(NamedTuple):
    """What dropping came to."""

    rows: int = 0
    num_bytes: int = 0


class Needed(NamedTuple):
    """What must stay: pinned stretches, and whatever does not end before a time."""

    pins: Pins = NO_PINS
    before_ns: int = ALL_TIME


class Weight(NamedTuple):
    """What a run's part is made of."""

    chunks: int
    events: int
    num_bytes: int


class Part(NamedTuple):
    """One run's part in a day, with the stretches that it belongs to: `[low, high)` by number."""

    run_key: int
    low: int
    high: int
    start_at_ns: int
    end_at_ns: int
    has_ended: bool


def drop_days_of_chunks(engine: Engine, needed: Needed, num_bytes: int) -> Gone:
    """Drop the oldest days that may go as a whole, until so many bytes are free.

    A day that must stay in part is passed over, and so is the newest quarter of what there is.
    """
    gone = Gone()
    for partition in _old_days(engine, "chunks"):
        if gone.num_bytes >= num_bytes:
            break
        dropped = _drop_chunks(engine, partition, needed)
        gone = Gone(gone.rows + dropped.rows, gone.num_bytes + dropped.num_bytes)
    return gone


def drop_days_of_maps(engine: Engine, needed: Needed, num_bytes: int) -> Gone:
    """Drop the oldest days of maps whose chunks are all gone, until so many bytes are free."""
    gone = Gone()
    for partition in _old_days(engine, "snapshots"):
        if gone.num_bytes >= num_bytes or partition.end_ns > needed.before_ns:
            break
        if needed.pins.touch(partition.start_ns, partition.end_ns):
            continue
        dropped = _drop_maps(engine, partition)
        gone = Gone(gone.rows + dropped.rows, gone.num_bytes + dropped.num_bytes)
    return gone


def _old_days(engine: Engine, table: str) -> list[Partition]:
    if engine.dialect.name != "postgresql":
        return []
    with engine.connect() as connection:
        newest = connection.execute(text("SELECT MAX(last_event_at_ns) FROM runs")).scalar() or 0
    days = [day for day in partitions_of_table(engine, table) if day.start_ns <= newest]
    return days[: max(0, len(days) - FEWEST_PARTITIONS + 1)]


def _drop_chunks(engine: Engine, day: Partition, needed: Needed) -> Gone:
    try:
        with engine.begin() as connection:
            lock_writers_out(connection, day)
            parts = _parts(connection, day, needed)
            if parts is None:
                return Gone()
            weights = [_weigh(connection, part) for part in parts]
            # From here on commits wait. Not before this a run's row is changed: a commit that had
            # chunks to store and waited for that row would keep us waiting in turn.
            detach(connection, day)
            for part, weight in zip(parts, weights, strict=True):
                _forget(connection, part, weight)
            connection.execute(text(f"DROP TABLE {day.name}"))
    except OperationalError:  # not had in time, or a deadlock that the server ended
        return Gone()
    return Gone(sum(each.chunks for each in weights), sum(each.num_bytes for each in weights))


def _parts(connection: Connection, day: Partition, needed: Needed) -> list[Part] | None:
    """Return whose detail is in a day; None where some of it must stay."""
    rows = connection.execute(
        text(
            "SELECT d.run_key, d.state, d.last_event_at_ns, low.seq AS low_seq,"
            " low.at_ns AS low_at_ns, high.seq AS high_seq, high.at_ns AS high_at_ns,"
            " NOT EXISTS (SELECT FROM snapshots s WHERE s.run_key=d.run_key AND s.seq<low.seq)"
            " AS is_first"
            " FROM (SELECT c.run_key, runs.state, runs.last_event_at_ns, MIN(c.seq0) AS first,"
            f" MAX(c.seq0) AS last FROM {day.name} c JOIN runs ON runs.run_key=c.run_key"
            " GROUP BY c.run_key, runs.state, runs.last_event_at_ns) AS d"
            " LEFT JOIN LATERAL (SELECT seq, at_ns FROM snapshots WHERE run_key=d.run_key"
            " AND seq<=d.first ORDER BY seq DESC LIMIT 1) AS low ON true"
            " LEFT JOIN LATERAL (SELECT seq, at_ns FROM snapshots WHERE run_key=d.run_key"
            " AND seq>d.last ORDER BY seq LIMIT 1) AS high ON true"
        )
    ).all()
    parts = []
    for row in rows:
        has_ended = row.state != RunState.LIVE
        if row.high_seq is None and not has_ended:
            return None  # an agent resumes from here
        part = Part(
            run_key=row.run_key,
            # Nothing before the first snapshot can be rebuilt: it goes with it.
            low=0 if row.low_seq is None or row.is_first else row.low_seq,
            high=ALL_TIME if row.high_seq is None else row.high_seq,
            start_at_ns=day.start_ns if row.low_at_ns is None else row.low_at_ns,
            end_at_ns=row.high_at_ns or row.last_event_at_ns or day.end_ns,
            has_ended=has_ended,
        )
        # It ends where the next one begins, which may be where a pin does.
        last_ns = max(part.start_at_ns, part.end_at_ns - 1)
        is_pinned = needed.pins.cover(part.run_key, part.start_at_ns, last_ns)
        if is_pinned or part.end_at_ns >= needed.before_ns:
            return None
        parts.append(part)
    return parts


def _weigh(connection: Connection, part: Part) -> Weight:
    row = connection.execute(
        text(
            "SELECT COUNT(*) AS chunks, COALESCE(SUM(num_events), 0) AS events,"
            " COALESCE(SUM(LENGTH(data)), 0) AS num_bytes FROM chunks"
            " WHERE run_key=:run_key AND seq0>=:low AND seq0<:high"
        ),
        part._asdict(),
    ).one()
    return Weight(int(row.chunks), int(row.events), int(row.num_bytes))


def _forget(connection: Connection, part: Part, weight: Weight) -> None:
    """Count a detached part out of the books; delete what it has in the days beside."""
    bind = part._asdict()
    state = "NULL" if part.has_ended else "state_data"
    within = "run_key=:run_key AND seq>=:low AND seq<:high"
    for statement in (
        "DELETE FROM chunks WHERE run_key=:run_key AND seq0>=:low AND seq0<:high",
        f"UPDATE snapshots SET detail_gone=1, state_data={state} WHERE {within} AND detail_gone=0",
    ):
        connection.execute(text(statement), bind)
    connection.execute(
        text(
            "UPDATE runs SET events_pruned=events_pruned+:events, num_chunks=num_chunks-:chunks,"
            " chunk_bytes=chunk_bytes-:num_bytes WHERE run_key=:run_key"
        ),
        {**weight._asdict(), "run_key": part.run_key},
    )


def _drop_maps(engine: Engine, day: Partition) -> Gone:
    try:
        with engine.begin() as connection:
            lock_writers_out(connection, day)
            row = connection.execute(
                text(
                    "SELECT COUNT(*) AS n, COALESCE(SUM(LENGTH(map_data)), 0) AS bytes,"
                    " COALESCE(BOOL_AND(detail_gone=1 AND state_data IS NULL AND"
                    # The first one behind detail that is kept tells where that ends.
                    " COALESCE((SELECT p.detail_gone FROM snapshots p WHERE p.run_key=s.run_key"
                    " AND p.seq<s.seq ORDER BY p.seq DESC LIMIT 1), 1)=1), true) AS may_go"
                    f" FROM {day.name} s"
                )
            ).one()
            if not row.may_go:
                return Gone()
            detach(connection, day)
            connection.execute(text(f"DROP TABLE {day.name}"))
    except OperationalError:
        return Gone()
    return Gone(int(row.n), int(row.bytes))
