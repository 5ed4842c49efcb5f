"""What the size bound took before the agent came is counted, per kind, to the event."""

import time
from pathlib import Path

import pytest

from agent.agent_loop import AgentLoop
from agent.commands.agent import main as agent
from agent.config import load_config
from agent.live_view import LiveView
from agent.reads.models import RunState
from agent.reads.reads import open_reads
from agent.store.store import Store
from kvpulse import Recorder, ShadowPool
from kvpulse.events import FinishReason, Kind
from tests.agent.factories_store import empty_store
from tests.kvpulse.factories_earlier_runs import SEGMENT_BYTES, earlier_run, segment_names
from tests.waiting import wait_until


def write_past_the_bound(journal: Path) -> dict[str, int]:
    """Record far more than the journal keeps; return what was emitted per kind."""
    recorder = Recorder.open(
        journal,
        "bounded",
        total_blocks=64,
        block_size=4,
        run_id="r",
        segment_bytes=65_536,
        max_bytes=3 * 65_536,
    )
    shadow = ShadowPool(recorder)
    for number in range(1, 4_000):
        shadow.arrive(number, 64, 8)
        shadow.admit(number)
        blocks = list(range(number % 40, number % 40 + 16))
        shadow.allocate(number, blocks)
        shadow.free(number, blocks)
        shadow.finish(number, FinishReason.STOP, (64, 2, 66, 0))
        if number % 100 == 0:
            recorder.heartbeat(number, 0, 0)
    recorder.close()  # may still find a segment, which begins with a keyframe
    return {kind.name.lower(): n for kind, n in recorder.emitted().items() if n}


def test_stored_and_lost_add_up_to_what_was_emitted_per_kind(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    emitted = write_past_the_bound(journal)

    assert agent(["--once", "--journal", str(journal), "--store", store]) == 0

    reads = open_reads(store)
    (engine,) = reads.engines()
    totals = reads.totals(engine.run_key)
    gaps = reads.gaps(engine.run_key)
    reads.close()
    assert {kind: total.stored + total.lost for kind, total in totals.items()} == emitted
    assert totals["allocate"].lost > totals["allocate"].stored > 0
    assert sum(sum(gap.lost.values()) for gap in gaps) == engine.events_lost
    assert engine.audits_failed == 0
    assert Kind.ALLOCATE.name.lower() in gaps[0].lost


def begin_the_next_run(journal: Path, *earlier: Path) -> None:
    """Record a run so small that its helper leaves one segment to each earlier run."""
    recorder = Recorder.open(
        journal,
        "engine-a",
        total_blocks=64,
        block_size=16,
        run_id="next",
        segment_bytes=SEGMENT_BYTES,
        max_bytes=3 * SEGMENT_BYTES,
    )
    wait_until(lambda: all(len(segment_names(run)) == 1 for run in earlier))
    recorder.close()


def read_a_little(journal: Path, store: str, turns: int) -> None:
    """Follow the journal with an agent that stops in the middle."""
    flags = {"journal": str(journal), "store": store}
    config = load_config(flags, {"KVPULSE_COMMIT_EVENTS": "700"})
    with Store.open(store) as opened:
        view = LiveView(time.time_ns(), store_label="store", journal=str(journal))
        loop = AgentLoop(config, opened, view)
        for _ in range(turns):
            loop.turn()
        loop.close()


@pytest.mark.parametrize("turns", [0, 3])
def test_what_the_next_run_took_from_earlier_ones_is_counted_per_kind(
    tmp_path: Path, turns: int
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    killed = earlier_run(journal, "killed", "kill")
    finished = earlier_run(journal, "finished", "finish")
    read_a_little(journal, store, turns)

    begin_the_next_run(journal, killed.directory, finished.directory)
    assert agent(["--once", "--journal", str(journal), "--store", store]) == 0

    reads = open_reads(store)
    runs = {row.run_id: row for row in reads.runs("engine-a")}
    for run in (killed, finished):
        row = runs[run.directory.name]
        totals = reads.totals(row.run_key)
        assert {kind: total.stored + total.lost for kind, total in totals.items()} == {
            kind.name.lower(): events for kind, events in run.emitted.items()
        }
        assert totals["allocate"].lost > 0
        assert totals["allocate"].stored > 0
    assert runs["killed"].state is RunState.DEAD
    assert runs["finished"].state is RunState.FINISHED
    reads.close()
