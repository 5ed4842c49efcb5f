"""A sequence's timeline, drawn from the stored chunks of its lifetime."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from sqlalchemy import Connection, text

from agent.chunks.chunk import Stretch, decode_chunk
from agent.ledger.event_columns import columns_of
from agent.reads.event_text import EventFields, describe, wait_cause
from agent.reads.models import RequestEvent
from agent.store.rows import kind_name
from kvpulse.events import Kind

MOST_EVENTS: Final = 2000
LATE_NS: Final = 1_000_000_000  # a sequence's last records may follow its end by a moment


def read_request_events(connection: Connection, run_key: int, owner: int) -> list[RequestEvent]:
    """Return what happened to a sequence, oldest first, at most `MOST_EVENTS`."""
    bind = {"key": run_key, "owner": owner}
    life = connection.execute(
        text(
            "SELECT wall_offset_ns, arrived_at_ns, requests.ended_at_ns, started_at_ns,"
            " last_event_at_ns FROM requests JOIN runs ON runs.run_key = requests.run_key"
            " WHERE requests.run_key=:key AND owner=:owner"
        ),
        bind,
    ).first()
    if life is None:
        return []
    begin = life.started_at_ns if life.arrived_at_ns is None else life.arrived_at_ns
    end = life.last_event_at_ns if life.ended_at_ns is None else life.ended_at_ns + LATE_NS
    chunks = connection.execute(
        text(
            "SELECT data FROM chunks WHERE run_key=:key AND start_at_ns<=:end"
            " AND start_at_ns>=COALESCE((SELECT MAX(start_at_ns) FROM chunks"
            " WHERE run_key=:key AND start_at_ns<=:begin), :begin) ORDER BY seq0"
        ),
        {"key": run_key, "begin": begin, "end": end},
    )
    events: list[RequestEvent] = []
    for chunk in chunks:
        events += _events_of(decode_chunk(bytes(chunk.data)), owner, life.wall_offset_ns)
        if len(events) >= MOST_EVENTS:
            break
    return events[:MOST_EVENTS]


def _events_of(stretch: Stretch, owner: int, offset: int) -> Iterator[RequestEvent]:
    records = stretch.records
    about = records["owner"] == owner
    # Whom it was preempted for, and who forked from it, name it in `aux`.
    about |= (records["aux"] == owner) & np.isin(records["kind"], (Kind.PREEMPT, Kind.FORK))
    for index in np.flatnonzero(about).tolist():
        yield _event(stretch, index, owner, offset)


def _event(stretch: Stretch, index: int, owner: int, offset: int) -> RequestEvent:
    picked = stretch.records[index : index + 1]
    columns = columns_of(picked, stretch.lane, stretch.lane_base)
    record = picked[0]
    fields = EventFields(
        kind=int(record["kind"]),
        flags=int(record["flags"]),
        n=int(record["n"]),
        aux=int(record["aux"]),
        words=columns.words(0),
    )
    told = describe(fields)
    about = int(record["owner"]) if int(record["owner"]) != owner else None
    return RequestEvent(
        t_ns=int(record["ts_ns"]) + offset,
        kind=kind_name(fields.kind),
        text=told if about is None else f"sequence {about} {told}",
        cause=wait_cause(fields),
        about=about,
    )
