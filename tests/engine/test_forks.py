"""Samples of one request: forks that share blocks until somebody writes into one."""

import dataclasses

import pytest

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.events import FinishReason, Kind, RejectReason
from tests.engine.factories_engine import COST, make_engine, make_request, run_until_done
from tests.engine.factories_ledger import PlainLedger


def live(engine):
    return list(engine._scheduler.live.values())


def references(engine):
    return sum(engine._pool.counts)


def copies(engine):
    return engine.accounts().acts[Kind.COPY_ON_WRITE]


def forked(engine, **request):
    """Submit a request of several samples and run the step in which it forks."""
    engine.submit(make_request(**request))
    engine.step()
    engine.check()
    return live(engine)


def test_four_samples_of_ten_tokens_hold_three_blocks_until_they_write():
    engine = make_engine(block_size=4)

    samples = forked(engine, prompt_tokens=10, n=4)

    assert len(samples) == 4
    assert engine._pool.num_active == 3
    assert references(engine) == 12
    assert copies(engine) == 0

    engine.step()  # each writes its first token
    engine.check()

    assert engine._pool.num_active == 6
    assert references(engine) == 12
    assert copies(engine) == 3
    assert len({tuple(seq.block_table.block_ids[:2]) for seq in samples}) == 1
    assert len({seq.block_table.block_ids[2] for seq in samples}) == 4


def test_a_prompt_that_fills_its_blocks_is_never_copied():
    engine = make_engine(block_size=4)

    forked(engine, prompt_tokens=8, n=4)
    engine.step()
    engine.check()

    assert copies(engine) == 0
    assert engine._pool.num_active == 2 + 4


def test_the_last_holder_writes_in_place():
    engine = make_engine(block_size=4)
    first, second, third = forked(engine, prompt_tokens=10, n=3)
    tail = third.block_table.block_ids[-1]

    engine.stop(first.seq_id)
    engine.stop(second.seq_id)
    engine.step()
    engine.check()

    assert copies(engine) == 0
    assert third.block_table.block_ids[-1] == tail


def test_events_name_the_request_the_sample_and_its_own_sequence():
    engine = make_engine(block_size=4)
    engine.submit(make_request(prompt_tokens=3, max_tokens=1))
    root = engine.submit(make_request(prompt_tokens=10, max_tokens=3, n=3)).seq_id

    events = [event for event in run_until_done(engine) if event.root == root]

    assert [event.index for event in events] == [0, 1, 2] * 3
    assert {event.index: event.seq_id for event in events} == {0: root, 1: root + 1, 2: root + 2}
    assert [event.finish_reason for event in events[-3:]] == [FinishReason.LENGTH] * 3


def test_samples_that_end_with_their_first_token_give_all_blocks_back():
    engine = make_engine(block_size=4)

    engine.submit(make_request(prompt_tokens=10, max_tokens=1, n=4))
    events = engine.step()
    engine.check()

    assert [event.finish_reason for event in events] == [FinishReason.LENGTH] * 4
    assert references(engine) == 0


def test_best_of_samples_more_than_are_asked_for_and_says_how_likely_each_is():
    engine = make_engine(block_size=4)

    engine.submit(make_request(prompt_tokens=10, max_tokens=2, n=1, best_of=3))
    events = run_until_done(engine)

    assert [event.index for event in events] == [0, 1, 2] * 2
    assert len({event.logprob for event in events}) == 6
    assert all(event.logprob < 0 for event in events)


def test_logprobs_of_one_sample_come_when_asked_for():
    engine = make_engine()
    engine.submit(make_request(max_tokens=2, logprobs=True))
    engine.submit(make_request(max_tokens=2))

    events = run_until_done(engine)

    assert [event.logprob < 0 for event in events] == [True, False] * 2


def test_samples_have_the_standing_of_their_request():
    engine = make_engine(block_size=4)
    request = make_request(prompt_tokens=10, n=3)
    engine.submit(dataclasses.replace(request, tier=7, priority=-3, deadline_ns=10**12))
    engine.step()

    first, *others = live(engine)

    for seq in others:
        assert (seq.tier, seq.priority) == (first.tier, first.priority)
        assert (seq.rank_ns, seq.deadline_ns) == (first.rank_ns, first.deadline_ns)
    assert first.tier == 1
    run_until_done(engine)


@pytest.mark.parametrize("num_steps", range(6))
def test_a_cancel_in_any_state_gives_every_block_back(num_steps):
    engine = make_engine(block_size=4, token_budget=6)
    root = engine.submit(make_request(prompt_tokens=10, n=4)).seq_id
    for _ in range(num_steps):
        engine.step()

    assert engine.cancel(root)
    engine.check()

    assert not engine.has_work
    assert references(engine) == 0


def test_a_preempted_sample_finds_the_shared_prompt_again():
    # Two requests whose four samples each may come to 14 blocks.
    engine = make_engine(block_size=4, total_blocks=15, max_batch=8)
    for _ in range(2):
        engine.submit(make_request(prompt_tokens=10, max_tokens=11, n=4))

    events = run_until_done(engine)

    accounts = engine.accounts()
    assert accounts.preemptions > 0
    assert accounts.prefix_hit_tokens >= 16
    assert [event.finish_reason for event in events].count(FinishReason.LENGTH) == 8
    assert len(events) == 88


def test_shared_blocks_are_offered_to_the_cache_once():
    engine = make_engine(block_size=4)

    forked(engine, prompt_tokens=10, n=4)

    assert engine._pool.num_kept == 2
    assert len(engine._pool.hashes()) == 2


def test_slots_filled_count_a_shared_tail_once():
    engine = make_engine(block_size=4)
    forked(engine, prompt_tokens=10, n=4)

    filled = engine._reports.filled_slots(engine._pool.num_active)

    assert filled == 10

    engine.step()

    assert engine._reports.filled_slots(engine._pool.num_active) == 8 + 4 * 3


def test_forks_are_recorded_so_that_a_ledger_follows_them(tmp_path):
    clock = VirtualClock()
    engine, recorder = open_engine(
        EngineConfig(total_blocks=14, block_size=4, max_batch=8, audit_interval_ns=20_000_000),
        SimulatedRunner(clock, cost=COST),
        clock=clock,
        journal=JournalSettings(tmp_path, wall_clock=clock.now_ns),
    )
    for n in (4, 1, 3):
        engine.submit(make_request(prompt_tokens=10, max_tokens=9, n=n))
    run_until_done(engine)
    engine.close()

    ledger = PlainLedger().read(recorder.directory)

    assert dict(ledger.events) == {k: n for k, n in engine.accounts().acts.items() if n}
    assert ledger.events[Kind.COPY_ON_WRITE] == 3 + 2
    assert ledger.events[Kind.ARRIVE] + ledger.events[Kind.FORK] == sum(ledger.ended.values()) == 8
    assert set(ledger.parents.values()) == {1, 3}
    assert ledger.audits > 5
    assert not ledger.tables


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 0},
        {"n": 3, "best_of": 2},
        {"n": 2, "beam_width": 1},
        {"n": 1, "best_of": 2, "beam_width": 2},
        {"beam_width": 2, "length_penalty": -1.0},
        {"beam_width": 2, "length_penalty": float("nan")},
        {"n": 5},
    ],
)
def test_samples_that_cannot_be_are_refused(fields):
    engine = make_engine(max_batch=4)

    rejection = engine.submit(make_request(**fields)).rejection

    assert rejection.reason is RejectReason.INVALID_REQUEST
    assert not engine.has_work


def test_a_beam_that_is_stopped_ends_its_search():
    engine = make_engine()
    beams = forked(engine, prompt_tokens=10, beam_width=3)

    assert engine.stop(beams[1].seq_id)
    engine.check()

    assert not engine.has_work
    assert references(engine) == 0
