"""What the size bound took before the agent came is counted, per kind, to the event."""

from pathlib import Path

from agent.commands.agent import main as agent
from agent.reads import open_reads
from kvpulse import Recorder, ShadowPool
from kvpulse.events import FinishReason, Kind
from tests.agent.factories_store import empty_store


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
