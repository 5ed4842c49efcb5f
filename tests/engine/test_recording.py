"""What the engine records is what it did, event by event."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.simulation.simulated_run import Simulation
from engine.simulation.simulated_runner import SimulatedRunner
from engine.simulation.trace_recording import TRACE_CONFIG, TraceRun, record_trace
from engine.simulation.workload import WorkloadShape, make_workload
from kvpulse.events import FinishReason, FreeOutcome, Kind, WaitCause
from kvpulse.keyframe import encode_keyframe
from kvpulse.keyframe_decoder import decode_keyframe
from tests.engine.factories_engine import COST, make_request
from tests.engine.factories_ledger import PlainLedger
from tests.waiting import wait_until

SMALL = EngineConfig(
    engine="test",
    total_blocks=230,
    max_batch=4,
    token_budget=512,
    max_queue=6,
    max_context=4_096,
    watermark_ratio=0.0,
)
SHAPE = WorkloadShape(
    num_requests=200,
    requests_per_second=2.0,
    scale=0.08,
    max_context=4_096,
    cancel_ratio=0.1,
    too_long_ratio=0.03,
    never_fits_ratio=0.03,
    seed=7,
)


def open_recorded(folder: Path, config=SMALL, **settings):
    clock = VirtualClock()
    journal = JournalSettings(folder, wall_clock=clock.now_ns, **settings)
    engine, recorder = open_engine(
        config, SimulatedRunner(clock, cost=COST), clock=clock, journal=journal
    )
    return engine, recorder, clock


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    """A run with every kind of trouble, through several segments; its accounts and its ledger."""
    folder = tmp_path_factory.mktemp("journal")
    engine, recorder, clock = open_recorded(folder, segment_bytes=256 * 1024)
    requests = make_workload(SHAPE, block_size=SMALL.block_size)

    def segment_is_ready(progress):
        wait_until(lambda: recorder._reserver.ready is not None)
        return True

    Simulation(engine, clock, requests).run(segment_is_ready)
    engine.check()
    engine.close()
    assert recorder.not_written() == {}
    return engine.accounts(), PlainLedger().read(recorder.directory)


def test_every_act_was_recorded_once(troubled):
    accounts, ledger = troubled

    assert dict(ledger.events) == {kind: n for kind, n in accounts.acts.items() if n}


def test_the_run_met_every_kind_of_trouble(troubled):
    accounts, ledger = troubled

    assert {"stop", "cancelled", "rejected"} <= set(accounts.finished_by_reason)
    assert set(accounts.rejected_by_reason) == {"context_too_long", "exceeds_pool", "queue_full"}
    assert accounts.preemptions > 0
    assert accounts.prefix_hit_tokens > 0
    assert accounts.seconds_with_pool_wait > 0
    assert {WaitCause.POOL, WaitCause.POOL_BEHIND, WaitCause.BATCH_SLOTS} <= set(ledger.causes_seen)
    assert ledger.keyframes > 2


def test_each_second_has_an_audit_that_holds(troubled):
    accounts, ledger = troubled

    assert ledger.audits == accounts.acts[Kind.POOL] > 30


def test_requests_arrived_are_requests_ended(troubled):
    accounts, ledger = troubled

    assert sum(accounts.finished_by_reason.values()) == accounts.requests == SHAPE.num_requests
    ended = {
        key if key == "rejected" else FinishReason(key).name.lower(): n
        for key, n in ledger.ended.items()
    }
    assert ended == accounts.finished_by_reason


def test_nothing_is_active_at_the_end(troubled):
    accounts, ledger = troubled

    assert accounts.active_blocks == 0
    assert +ledger.counts == {}
    assert ledger.tables == {}


def test_a_shared_block_is_held_until_its_last_owner_frees_it(troubled):
    _, ledger = troubled

    outcomes = {flags for _, _, flags, _ in ledger.free_runs}
    assert outcomes == {FreeOutcome.HELD, FreeOutcome.TO_CACHE, FreeOutcome.TO_FREE}
    assert all(aux > 0 for *_, flags, aux in ledger.free_runs if flags == FreeOutcome.HELD)


def test_blocks_come_back_before_the_end_is_stated(tmp_path):
    engine, recorder, _ = open_recorded(tmp_path)
    engine.submit(make_request(20, 3, block_size=16))
    while engine.has_work:
        engine.step()
    engine.close()

    ledger = PlainLedger().read(recorder.directory)

    kinds = [kind for kind, owner, *_ in ledger.records if owner == 1]
    assert kinds == [
        Kind.ARRIVE,
        Kind.ADMIT,
        Kind.PREFIX_HIT,
        Kind.ALLOCATE,
        Kind.CACHE,
        Kind.FIRST_TOKEN,
        Kind.FREE,
        Kind.FREE,
        Kind.FINISH,
    ]
    assert ledger.left == []


def test_the_same_requests_give_the_same_journal(tmp_path):
    requests = make_workload(SHAPE, block_size=SMALL.block_size)[:150]
    run = TraceRun(config=SMALL, cost=COST)

    first = record_trace(requests, journal=tmp_path / "a", run=run)
    second = record_trace(requests, journal=tmp_path / "b", run=run)

    assert first.accounts == second.accounts
    assert after_header(first.directory) == after_header(second.directory)


def after_header(directory: Path) -> list[bytes]:
    """Return the records and lanes; the header names run, process and boot."""
    return [path.read_bytes()[4096:] for path in sorted(directory.glob("*.seg"))]


def test_a_recording_goes_on_until_it_has_enough_events(tmp_path):
    requests = make_workload(SHAPE, block_size=SMALL.block_size)[:20]
    run = TraceRun(config=SMALL, cost=COST)

    recorded = record_trace(requests, journal=tmp_path, min_events=20_000, run=run)

    assert recorded.accounts.num_events >= 20_000
    assert recorded.accounts.requests > 20
    assert recorded.not_written == 0
    assert recorded.accounts.active_blocks == 0


def test_the_default_run_has_a_pool_of_its_own_size():
    assert TraceRun().config == TRACE_CONFIG


def test_an_engine_without_a_recorder_counts_the_same_acts(tmp_path):
    requests = make_workload(SHAPE, block_size=SMALL.block_size)[:100]
    clock = VirtualClock()
    bare, _ = open_engine(SMALL, SimulatedRunner(clock, cost=COST), clock=clock, journal=None)
    engine, _, engine_clock = open_recorded(tmp_path)

    Simulation(bare, clock, requests).run(lambda progress: True)
    Simulation(engine, engine_clock, requests).run(lambda progress: True)
    engine.close()
    bare.close()

    acts, bare_acts = dict(engine.accounts().acts), dict(bare.accounts().acts)
    assert acts.pop(Kind.KEYFRAME) == 1
    assert bare_acts.pop(Kind.KEYFRAME) == 0
    assert acts == bare_acts


def test_what_does_not_fit_its_place_in_the_stream_costs_neither_arrival_nor_keyframe(tmp_path):
    engine, recorder, _ = open_recorded(tmp_path)
    fields = {"priority": -(2**70), "retry": 2**40, "tier": -3, "deadline_ns": 2**70}
    engine.submit(replace(make_request(8, 40), **fields))
    engine.submit(replace(make_request(8, 40), priority=2**31))

    words = b"".join(encode_keyframe(engine._keyframes.take(), {}))
    keyframe, _ = decode_keyframe(np.frombuffer(words, np.uint32))

    assert recorder.not_written() == {}
    assert [seq.priority for seq in keyframe.sequences] == [-(2**31), 2**31 - 1]
