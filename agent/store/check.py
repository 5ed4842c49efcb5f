"""Recount a store: whether what is stored still obeys the laws that held when it was stored.

Every number is reached in two ways: totals against rows, chunks against what was counted when they
were written, each snapshot against the replay of the one before it, coarse rollups against fine
ones, a request's waits against its times. Nothing is mended; what retention took counts as taken.
"""

import json
from collections.abc import Iterator
from typing import Final

import numpy as np
from sqlalchemy import Connection, RowMapping, text

from agent.block_map import MapReplay, StoredMap, decode_map
from agent.chunks.chunk import Stretch, decode_chunk
from agent.errors import ChunkError, HistogramError, StateError
from agent.rollups.histogram import decode_buckets
from agent.store.check_rollups import check_rollups
from agent.store.check_values import Finding, differ
from kvpulse.events import MAX_KINDS, BlockState, Kind
from kvpulse.stream_values import event_counts

ACTIVE: Final = int(BlockState.ACTIVE)


def check_runs(connection: Connection) -> Iterator[Finding]:
    """Yield everything that does not add up, run by run."""
    runs = connection.execute(
        text(
            "SELECT runs.*, positions.seq FROM runs LEFT JOIN positions"
            " ON positions.run_key = runs.run_key ORDER BY runs.run_key"
        )
    ).mappings()
    for run in runs.all():
        yield from _check_totals(connection, run)
        yield from _check_chunks(connection, run)
        yield from _check_snapshots(connection, run)
        yield from check_rollups(connection, run)
        yield from _check_latencies(connection, run)
        yield from _check_requests(connection, run)


def _check_totals(connection: Connection, run: RowMapping) -> Iterator[Finding]:
    bind = {"key": run["run_key"]}
    row = connection.execute(
        text(
            "SELECT COALESCE(SUM(stored), 0) AS stored, COALESCE(SUM(lost), 0) AS lost"
            " FROM kind_totals WHERE run_key=:key"
        ),
        bind,
    ).one()
    gaps = connection.execute(text("SELECT lost FROM gaps WHERE run_key=:key"), bind).scalars()
    try:
        lost = sum(sum(json.loads(text_of).values()) for text_of in gaps)
    except (ValueError, TypeError, AttributeError, RecursionError):
        yield Finding(run["run_key"], "gaps_readable", "a gap's loss is not what was written")
        lost = run["events_lost"]
    key = run["run_key"]
    yield from differ(key, "events_add_up", "stored by kind", row.stored, run["events_stored"])
    yield from differ(key, "losses_add_up", "lost by kind", row.lost, run["events_lost"])
    yield from differ(key, "losses_add_up", "lost in gaps", lost, run["events_lost"])


def _check_chunks(connection: Connection, run: RowMapping) -> Iterator[Finding]:
    key, bind = run["run_key"], {"key": run["run_key"]}
    per_kind = np.zeros(MAX_KINDS, np.int64)
    number = num_bytes = num_events = 0
    end: int | None = None
    broken = False
    for row in connection.execute(
        text("SELECT * FROM chunks WHERE run_key=:key ORDER BY seq0"), bind
    ).mappings():
        number, num_bytes = number + 1, num_bytes + len(row["data"])
        num_events += row["num_events"]
        name = f"chunk {row['seq0']}"
        if end is not None and row["seq0"] < end:
            yield Finding(key, "chunks_in_order", f"{name} begins before the last one's end {end}")
        end = row["seq0"] + row["num_records"]
        try:
            stretch = decode_chunk(bytes(row["data"]))
        except ChunkError as error:
            broken = True
            yield Finding(key, "chunks_readable", f"{name}: {error}")
            continue
        counts = event_counts(stretch.records)
        kinds = np.minimum(stretch.records["kind"], MAX_KINDS - 1)
        per_kind += np.bincount(kinds, weights=counts, minlength=MAX_KINDS).astype(np.int64)
        yield from _check_chunk(run, row, stretch, int(counts.sum()))
    held = run["events_stored"] - run["events_pruned"]
    yield from differ(key, "chunks_add_up", "events in chunks", num_events, held)
    yield from differ(key, "chunks_add_up", "chunks", number, run["num_chunks"])
    yield from differ(key, "chunks_add_up", "bytes of chunks", num_bytes, run["chunk_bytes"])
    if not run["events_pruned"] and not broken:
        yield from _check_kinds(connection, key, per_kind)


def _check_chunk(
    run: RowMapping, row: RowMapping, stretch: Stretch, num_events: int
) -> Iterator[Finding]:
    key, name, offset = run["run_key"], f"chunk {row['seq0']}", run["wall_offset_ns"]
    records = stretch.records
    first, last = (int(t) + offset for t in (records["ts_ns"][0], records["ts_ns"][-1]))
    for what, found, said in (
        ("first record", stretch.seq0, row["seq0"]),
        ("records", len(records), row["num_records"]),
        ("events", num_events, row["num_events"]),
        ("begin", first, row["start_at_ns"]),
        ("end", last, row["end_at_ns"]),
    ):
        yield from differ(key, "chunks_say_what_they_hold", f"{name}: {what}", found, said)


def _check_kinds(
    connection: Connection, key: int, per_kind: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Iterator[Finding]:
    rows = connection.execute(
        text("SELECT kind, stored FROM kind_totals WHERE run_key=:key"), {"key": key}
    )
    stored = {row.kind: row.stored for row in rows}
    for kind, found in enumerate(per_kind.tolist()):
        name = Kind(kind).name.lower() if kind in set(Kind) else f"kind {kind}"
        yield from differ(key, "kinds_add_up", f"{name} in chunks", found, stored.get(kind, 0))


def _check_snapshots(connection: Connection, run: RowMapping) -> Iterator[Finding]:
    key = run["run_key"]
    before: tuple[int, StoredMap, bool] | None = None
    rows = connection.execute(
        text("SELECT seq, map_data, detail_gone FROM snapshots WHERE run_key=:key ORDER BY seq"),
        {"key": key},
    )
    for row in rows:
        try:
            stored = decode_map(bytes(row.map_data))
        except StateError as error:
            yield Finding(key, "snapshots_readable", f"snapshot {row.seq}: {error}")
            before = None
            continue
        yield from _check_map(key, row.seq, stored)
        if before is not None and before[2] and stored.exact and before[1].exact:
            yield from _check_replay(connection, key, before[0], before[1], row.seq, stored)
        before = (row.seq, stored, not row.detail_gone)


def _check_map(key: int, seq: int, stored: StoredMap) -> Iterator[Finding]:
    name = f"snapshot {seq}"
    active = int(np.count_nonzero(stored.state == ACTIVE))
    counted = int(np.count_nonzero(stored.count))
    yield from differ(key, "active_adds_up", f"{name}: active blocks", active, counted)
    if stored.exact:
        held = np.bincount(stored.ref_block, minlength=len(stored.count))
        wrong = int(np.count_nonzero(held[: len(stored.count)] != stored.count))
        what = f"{name}: blocks whose holders and count differ"
        yield from differ(key, "references_add_up", what, wrong, 0)


def _check_replay(
    connection: Connection, key: int, low: int, first: StoredMap, high: int, then: StoredMap
) -> Iterator[Finding]:
    """Replay the chunks between two snapshots: allocate + share - free gives the later counts."""
    bind = {"key": key, "low": low, "high": high}
    gaps = connection.execute(
        text("SELECT COUNT(*) FROM gaps WHERE run_key=:key AND seq1>:low AND seq0<:high"), bind
    ).scalar_one()
    if gaps:
        return
    chunks = connection.execute(
        text(
            "SELECT data FROM chunks WHERE run_key=:key AND seq0>=:low AND seq0<:high ORDER BY seq0"
        ),
        bind,
    ).scalars()
    replay = MapReplay(first)
    try:
        for blob in chunks:
            replay.apply(decode_chunk(bytes(blob)), until_ns=1 << 62)
    except ChunkError:
        return  # told already
    found = replay.result(at_ns=then.t_ns)
    name = f"snapshot {high} against the replay from {low}"
    if len(found.count) != len(then.count):
        yield Finding(
            key, "counts_add_up", f"{name}: {len(found.count)} blocks, not {len(then.count)}"
        )
        return
    counts = int(np.count_nonzero(found.count != then.count))
    states = int(np.count_nonzero(found.state != then.state))
    yield from differ(key, "counts_add_up", f"{name}: blocks of another count", counts, 0)
    yield from differ(key, "states_add_up", f"{name}: blocks of another state", states, 0)


def _check_latencies(connection: Connection, run: RowMapping) -> Iterator[Finding]:
    key = run["run_key"]
    rows = connection.execute(
        text("SELECT latencies.*, count AS num_samples FROM latencies WHERE run_key=:key"),
        {"key": key},
    )
    for row in rows:
        name = f"{row.metric} of {row.tier_seconds} s at {row.at_ns}"
        try:
            counts = decode_buckets(bytes(row.histogram))[1]
        except HistogramError as error:
            yield Finding(key, "histograms_readable", f"{name}: {error}")
            continue
        yield from differ(key, "latencies_add_up", f"{name}: samples", sum(counts), row.num_samples)
        if not row.min_ns <= row.p50_ns <= row.p95_ns <= row.p99_ns <= row.max_ns:
            yield Finding(key, "latencies_add_up", f"{name}: quantiles out of order")


def _check_requests(connection: Connection, run: RowMapping) -> Iterator[Finding]:
    key = run["run_key"]
    rows = connection.execute(
        text(
            "SELECT owner, arrived_at_ns, admitted_at_ns, wait_ns, wait_pool_ns,"
            " wait_scheduler_ns, wait_quota_ns, wait_transfer_ns FROM requests"
            " WHERE run_key=:key AND wait_ns IS NOT NULL AND spans_gap=0"
        ),
        {"key": key},
    )
    for row in rows:
        classes = [row.wait_pool_ns, row.wait_scheduler_ns, row.wait_quota_ns, row.wait_transfer_ns]
        if None in classes:
            continue
        try:
            causes = sum(json.loads(row.wait_ns).values())
        except (ValueError, TypeError, AttributeError, RecursionError):
            yield Finding(key, "requests_readable", f"sequence {row.owner}: its waits are no JSON")
            continue
        name = f"sequence {row.owner}: waits by class"
        yield from differ(key, "waits_add_up", name, sum(classes), causes)
        if row.admitted_at_ns is not None and row.arrived_at_ns is not None:
            queue = row.admitted_at_ns - row.arrived_at_ns
            yield from differ(key, "waits_add_up", name, sum(classes), queue)
