"""Stretches of detail: a snapshot with the chunks up to the next one."""

from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from agent.reads.models import RunState

MOST_STRETCHES: Final = 32  # read at a time


class DetailStretch(NamedTuple):
    """A snapshot and the chunks up to the next one."""

    run_key: int
    low: int  # first sequence number
    high: int | None  # None: up to the end of the run
    snapshot_seq: int
    start_at_ns: int
    end_at_ns: int
    has_ended: bool  # the run: nobody resumes from this snapshot


class Mark(NamedTuple):
    """How far a walk over the stretches, oldest first, has come."""

    at_ns: int = -(1 << 62)
    run_key: int = 0
    seq: int = 0


def oldest_stretches(connection: Connection, after: Mark) -> list[DetailStretch]:
    """Return the next stretches of detail that may be deleted, oldest first."""
    rows = connection.execute(
        text(
            "SELECT s.run_key, s.seq, s.at_ns, runs.state, runs.last_event_at_ns,"
            " (SELECT MIN(n.seq) FROM snapshots n WHERE n.run_key=s.run_key AND n.seq>s.seq)"
            " AS next_seq,"
            " (SELECT MIN(n.at_ns) FROM snapshots n WHERE n.run_key=s.run_key AND n.seq>s.seq)"
            " AS next_at_ns,"
            " (SELECT MAX(p.seq) FROM snapshots p WHERE p.run_key=s.run_key AND p.seq<s.seq)"
            " AS before_seq"
            " FROM snapshots s JOIN runs ON runs.run_key=s.run_key WHERE s.detail_gone=0"
            " AND (s.at_ns, s.run_key, s.seq) > (:at_ns, :run_key, :seq)"
            " ORDER BY s.at_ns, s.run_key, s.seq LIMIT :most"
        ),
        {**after._asdict(), "most": MOST_STRETCHES},
    ).all()
    return [
        DetailStretch(
            run_key=row.run_key,
            # Nothing before the first snapshot can be rebuilt: it goes with it.
            low=0 if row.before_seq is None else row.seq,
            high=row.next_seq,
            snapshot_seq=row.seq,
            start_at_ns=row.at_ns,
            end_at_ns=row.next_at_ns or row.last_event_at_ns or row.at_ns,
            has_ended=row.state != RunState.LIVE,
        )
        for row in rows
        if row.next_seq is not None or row.state != RunState.LIVE
    ]


def chunks_within(stretch: DetailStretch) -> str:
    """Return the condition on `chunks` that holds for those of a stretch."""
    where = "run_key=:run_key AND seq0>=:low"
    return where if stretch.high is None else f"{where} AND seq0<:high"
