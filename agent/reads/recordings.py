"""A window of one run as a recording to replay, out of the stored chunks."""

import json
from itertools import pairwise
from typing import Final, NamedTuple

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import SQLAlchemyError

from agent.baselines.errors import BaselineRefused, RecordingGone
from agent.chunks.chunk import decode_chunk
from agent.errors import ChunkError, StoreUnreadable
from agent.reads.windows import choose_engine, newest_config
from agent.store.connection import first_line, open_for_reading, parse_address
from agent.store.revision import check_revision
from kvpulse.window_recording import WindowRecorder, WindowRecording

NS: Final = 1_000_000_000
LATE_NS: Final = 5 * NS  # a live engine is never silent for so long
LONGEST_NS: Final = 3_600 * NS


class Stretch(NamedTuple):
    """A window of one engine in wall time."""

    engine: str
    start_ns: int
    end_ns: int


def record_window(store: str, wanted: Stretch) -> WindowRecording:
    """Take a window out of a store, on a connection of its own: it is asked for rarely.

    Raises:
        StoreError: The store cannot be read.
        BaselineRefused, RecordingGone: As `read_recording`.
    """
    address = parse_address(store)
    engine = open_for_reading(address)
    try:
        check_revision(engine, address)
        with engine.connect() as connection:
            return read_recording(connection, wanted)
    except SQLAlchemyError as error:
        raise StoreUnreadable(address.label, first_line(error)) from error
    finally:
        engine.dispose()


def read_recording(connection: Connection, wanted: Stretch) -> WindowRecording:
    """Return what the engine was asked to do in a window, and what its steps took.

    Raises:
        BaselineRefused: The window is empty, longer than an hour, or of no such engine.
        RecordingGone: Its events are not all kept any more, or it spans a restart.
    """
    if not 0 < wanted.end_ns - wanted.start_ns <= LONGEST_NS:
        raise BaselineRefused("a recording is of at most an hour, and ends after it begins")
    run = _run(connection, wanted)
    rows = _chunks(connection, run.run_key, wanted)
    gaps = _gaps(connection, run.run_key, wanted)
    end_ns = min(wanted.end_ns, run.last_event_at_ns)
    _check_whole(rows, gaps, wanted._replace(end_ns=end_ns))
    recorder = WindowRecorder(
        wanted.start_ns - run.wall_offset_ns,
        wanted.end_ns - run.wall_offset_ns,
        num_lost=sum(sum(json.loads(gap.lost).values()) for gap in gaps),
    )
    query = text("SELECT data FROM chunks WHERE run_key=:key AND seq0=:seq0")
    for row in rows:
        data = connection.execute(query, {"key": run.run_key, "seq0": row.seq0}).scalar_one()
        try:
            stretch = decode_chunk(bytes(data))
        except ChunkError as error:
            raise RecordingGone(f"a chunk of the window cannot be read: {error}") from error
        recorder.take(stretch.records, stretch.lane, stretch.lane_base)
    return recorder.recording(newest_config(connection, run, wanted.end_ns))


def _run(connection: Connection, wanted: Stretch) -> Row[tuple[object, ...]]:
    query = text(
        "SELECT run_key, wall_offset_ns, fingerprint, last_event_at_ns FROM runs"
        " WHERE engine=:engine AND started_at_ns<:end AND last_event_at_ns>=:start"
    )
    engine = choose_engine(connection, wanted.engine)
    bind = {"engine": engine, "start": wanted.start_ns, "end": wanted.end_ns}
    runs = connection.execute(query, bind).all()
    if len(runs) != 1:
        told = "nothing was recorded in" if not runs else "the engine restarted within"
        raise RecordingGone(f"{told} the last hour of a window: choose another one")
    return runs[0]


def _chunks(connection: Connection, run_key: int, wanted: Stretch) -> list[Row[tuple[object, ...]]]:
    query = text(
        "SELECT seq0, num_records, start_at_ns, end_at_ns FROM chunks WHERE run_key=:key"
        " AND end_at_ns>=:start AND start_at_ns<:end ORDER BY seq0"
    )
    bind = {"key": run_key, "start": wanted.start_ns, "end": wanted.end_ns}
    return list(connection.execute(query, bind).all())


def _gaps(connection: Connection, run_key: int, wanted: Stretch) -> list[Row[tuple[object, ...]]]:
    query = text(
        "SELECT seq0, seq1, lost FROM gaps WHERE run_key=:key"
        " AND end_at_ns>=:start AND start_at_ns<:end"
    )
    bind = {"key": run_key, "start": wanted.start_ns, "end": wanted.end_ns}
    return list(connection.execute(query, bind).all())


def _check_whole(
    chunks: list[Row[tuple[object, ...]]], gaps: list[Row[tuple[object, ...]]], wanted: Stretch
) -> None:
    """Refuse a window of which retention took chunks: at an end, or around what it keeps."""
    is_whole = bool(chunks) and (
        chunks[0].start_at_ns <= wanted.start_ns + LATE_NS
        and chunks[-1].end_at_ns >= wanted.end_ns - LATE_NS
    )
    for before, after in pairwise(chunks):
        end = before.seq0 + before.num_records
        is_whole &= end >= after.seq0 or any(g.seq0 < after.seq0 and g.seq1 > end for g in gaps)
    if not is_whole:
        raise RecordingGone(
            "the events of a window are not all kept any more: retention takes the oldest first."
            " Compare windows that are younger, or give the store more room"
        )
