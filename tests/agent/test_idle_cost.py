"""What does not change costs next to nothing, and reads as if every second had its row."""

import sqlite3
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent.agent_loop import AgentLoop
from agent.chunks.chunk import Stretch, decode_chunk, encode_chunk
from agent.chunks.layout import is_quiet
from agent.chunks.merge import FAN_OUT, NO_CHUNKS, plan_merge
from agent.config import AgentConfig
from agent.ledger.event_columns import columns_of
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.rollups.repeats import plan_repeats
from agent.store.store import Store
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    delta,
    empty_store,
    progress,
    rollup,
)
from tests.agent.factories_stream import SECOND, ToyEngine, batches


def idle(engine: ToyEngine, seconds: int) -> None:
    """Let seconds pass as an idle engine does, not quite evenly."""
    for second in range(seconds):
        engine.clock.now_ns += SECOND + (second * 7919) % 200_000
        engine.pool()
        engine.recorder.heartbeat(0, 0, 0)


def test_an_idle_day_costs_less_than_a_megabyte(tmp_path: Path) -> None:
    where, hours = empty_store(tmp_path), 2
    engine = ToyEngine(tmp_path / "journal", total_blocks=24)
    with Store.open(where) as store:
        loop = AgentLoop(AgentConfig(tmp_path / "journal", where), store, LiveView(0))
        before = used_bytes(where)
        for _ in range(hours * 120):
            idle(engine, 30)
            loop.turn(scan=True)
    engine.recorder.close()

    per_day = (used_bytes(where) - before) / hours * 24

    assert per_day < 1_000_000
    reads = open_reads(where)
    (row,) = reads.engines()
    end = row.last_event_at_ns
    series = reads.series(row.run_key, ["free_blocks", "events_stored"], end - 600 * NS, end)
    reads.close()
    assert len(series.t_ns) >= 600
    assert (np.diff(series.t_ns) == NS).all()
    assert set(series.values["free_blocks"]) == {24}
    assert series.values["events_stored"][1:-1].min() >= 0
    assert row.audits_failed == 0


def used_bytes(where: str) -> int:
    with sqlite3.connect(where) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    return (pages - free) * size


def test_equal_seconds_are_one_row_and_read_as_all_of_them(tmp_path: Path) -> None:
    where = empty_store(tmp_path)
    seconds = [rollup(1, second, running=2, steps=0) for second in range(1, 8)]
    other = rollup(1, 8, running=2, steps=1)
    with Store.open(where) as store:
        writer = store.writer(STREAM)
        key = writer.commit(delta(1, rollups=tuple(seconds[:3])), SHAPE, progress(1))
        writer.commit(delta(2, rollups=tuple(seconds[2:5])), SHAPE, progress(2))
        writer.commit(delta(3, rollups=(*seconds[5:], other)), SHAPE, progress(3))
        late = delta(9_000, rollups=(rollup(1, 9, running=2, steps=1),))
        writer.commit(late, SHAPE, progress(9_000))

    with sqlite3.connect(where) as connection:
        rows = connection.execute(
            "SELECT (at_ns - ?) / 1000000000, repeats, steps FROM rollups ORDER BY at_ns", (OFFSET,)
        ).fetchall()
    connection.close()
    assert rows == [(1, 6, 0), (8, 0, 1), (9, 0, 1)]
    reads = open_reads(where)
    whole = reads.series(key, ["running", "steps", "waiting"], OFFSET, OFFSET + 20 * NS)
    part = reads.series(key, ["steps"], OFFSET + 4 * NS, OFFSET + 6 * NS)
    reads.close()
    assert ((whole.t_ns - OFFSET) // NS).tolist() == list(range(1, 10))
    assert whole.values["steps"].tolist() == [0] * 7 + [1, 1]
    assert np.isnan(whole.values["waiting"]).all()  # still not measured, not zero
    assert ((part.t_ns - OFFSET) // NS).tolist() == [4, 5]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1)), max_size=40), st.integers(1, 7))
def test_rows_and_repeats_give_back_every_interval_whatever_the_commits(
    steps: list[tuple[int, int]], per_commit: int
) -> None:
    times = np.cumsum([gap for gap, _ in steps]).tolist()
    given_rows = [rollup(1, t, steps=v) for t, (_, v) in zip(times, steps, strict=True)]
    ends, stored = {}, {}
    for at in range(0, len(given_rows), per_commit):
        first = max(0, at - 1)  # the open interval is handed out once more
        plan = plan_repeats(ends, given_rows[first : at + per_commit])
        ends = plan.ends
        for row in plan.dropped:
            del stored[row.t_ns]
        stored.update((item.row.t_ns, item) for item in plan.rows)

    again = {
        t_ns + n * NS: item.row.values
        for t_ns, item in stored.items()
        for n in range(item.repeats + 1)
    }

    assert again == {row.t_ns: row.values for row in given_rows}


def test_a_refused_commit_does_not_count_an_interval_twice(tmp_path: Path) -> None:
    rows = [rollup(1, second) for second in range(1, 4)]
    plan = plan_repeats({}, rows)

    assert plan_repeats({}, rows) == plan
    assert [(item.row.t_ns // NS, item.repeats) for item in plan.rows] == [(1, 1), (3, 0)]


def test_a_quiet_stretch_comes_back_and_is_small(tmp_path: Path) -> None:
    engine = ToyEngine(tmp_path, total_blocks=64)
    idle(engine, 2_000)
    engine.recorder.close()
    batch = next(batches(engine.recorder.directory))
    stretch = Stretch(batch.seq0, batch.records, batch.lane, batch.lane_base)

    chunk = encode_chunk(stretch, len(batch.records))
    again = decode_chunk(chunk.blob)

    assert is_quiet(stretch.records)
    assert len(chunk.blob) < 4 * len(stretch.records)
    assert (again.records["ts_ns"] == stretch.records["ts_ns"]).all()
    mine = columns_of(again.records, again.lane, again.lane_base)
    theirs = columns_of(stretch.records, stretch.lane, stretch.lane_base)
    last = len(stretch.records) - 1
    assert all(mine.words(i) == theirs.words(i) for i in (1, 2, 3, last - 1, last))


def test_small_chunks_are_joined_again_and_again(tmp_path: Path) -> None:
    engine = ToyEngine(tmp_path, total_blocks=64)
    idle(engine, FAN_OUT[0] * FAN_OUT[1] // 2)
    engine.recorder.close()
    batch = next(batches(engine.recorder.directory))
    waiting, held = NO_CHUNKS, {}
    for seq in range(len(batch.records)):
        piece = Stretch(seq, batch.records[seq : seq + 1], batch.lane, batch.lane_base)
        chunk = encode_chunk(piece, 1)
        plan = plan_merge(waiting, delta(seq + 1, chunks=(chunk,)))
        waiting = plan.waiting
        held[seq] = chunk
        for old in plan.joined:
            del held[old.seq0]
        if plan.merged is not None:
            held[plan.merged.seq0] = plan.merged

    assert len(held) < FAN_OUT[0]
    assert sum(chunk.num_records for chunk in held.values()) == len(batch.records)
    assert sorted(held) == sorted(chunk.seq0 for level in waiting for chunk in level)
