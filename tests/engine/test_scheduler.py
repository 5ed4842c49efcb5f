"""Batching, chunks, prefix hits, preemption, cancel, and what arrival decides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import VirtualClock
from engine.sequence import SequenceStatus
from kvpulse.events import FinishReason, Kind
from tests.engine.factories_engine import hash_of, make_engine, make_request, run_until_done


def live(engine, seq_id):
    return engine._scheduler.live[seq_id]


def plan_of(engine):
    """Run one step and return how many tokens of each sequence it ran."""
    plans = []
    execute = engine._runner.execute

    def watched(plan):
        plans.append(
            {s.seq_id: n for s, n in zip(plan.sequences, plan.num_new_tokens, strict=True)}
        )
        return execute(plan)

    engine._runner.execute = watched
    engine.step()
    engine._runner.execute = execute
    return plans[0] if plans else {}


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    engine = make_engine(token_budget=8)
    engine.submit(make_request(20, 2))

    assert [plan_of(engine) for _ in range(4)] == [{1: 8}, {1: 8}, {1: 4}, {1: 1}]
    assert not engine.has_work


def test_decodes_always_fit_beside_a_long_prompt():
    engine = make_engine(token_budget=8)
    engine.submit(make_request(4, 8))
    engine.step()
    engine.submit(make_request(20, 2))

    assert [plan_of(engine) for _ in range(4)] == [
        {1: 1, 2: 7},
        {1: 1, 2: 7},
        {1: 1, 2: 6},
        {1: 1, 2: 1},
    ]


def test_a_sequence_joins_while_others_run_and_leaves_when_it_is_done():
    engine = make_engine()
    engine.submit(make_request(4, 2))
    engine.step()
    engine.submit(make_request(4, 3))

    assert [sorted(plan_of(engine)) for _ in range(3)] == [[1, 2], [2], [2]]


def test_tokens_come_one_by_one_and_the_last_says_why_it_was_the_last():
    engine = make_engine()
    engine.submit(make_request(4, 3))

    events = run_until_done(engine)

    assert [event.finish_reason for event in events] == [None, None, FinishReason.LENGTH]
    assert {event.seq_id for event in events} == {1}


def test_the_models_end_token_stops_a_sequence_unless_it_is_to_be_ignored():
    engine = make_engine()
    engine.submit(make_request(4, 8, ends_at=3))
    engine.submit(make_request(4, 8, ends_at=3, ignore_eos=True))

    events = run_until_done(engine)

    ends = {e.seq_id: e.finish_reason for e in events if e.finish_reason}
    assert ends == {1: FinishReason.STOP, 2: FinishReason.LENGTH}
    assert [e.seq_id for e in events].count(1) == 3


def test_a_shared_beginning_is_taken_from_the_cache():
    engine = make_engine()
    engine.submit(make_request(14, 2, prefix="abc"))
    run_until_done(engine)

    engine.submit(make_request(14, 2, prefix="abd"))
    engine.step()

    assert engine.accounts().prefix_hit_tokens == 8
    run_until_done(engine)


def test_a_fully_cached_prompt_still_computes_the_whole_of_its_last_block():
    engine = make_engine()
    engine.submit(make_request(12, 2, prefix="abc"))
    run_until_done(engine)
    shared = engine._pool.block_with(hash_of("abc"))

    engine.submit(make_request(12, 2, prefix="abc"))

    assert plan_of(engine) == {2: 4}
    assert shared not in live(engine, 2).block_table.block_ids


def test_what_was_generated_is_found_again_after_a_preemption():
    engine = make_engine(total_blocks=7, token_budget=64)
    for _ in range(2):
        engine.submit(make_request(8, 14))

    run_until_done(engine)

    accounts = engine.accounts()
    assert accounts.preemptions > 0
    assert accounts.prefix_hit_tokens > 0
    assert accounts.acts[Kind.RESUME] == accounts.acts[Kind.PREEMPT]


def test_the_sequence_that_arrived_last_gives_its_blocks_to_the_earlier_ones():
    engine = make_engine(total_blocks=6, token_budget=64)
    engine.submit(make_request(8, 12))
    engine.submit(make_request(8, 12))
    while not engine.accounts().preemptions:
        engine.step()

    assert live(engine, 2).status is SequenceStatus.PREEMPTED
    assert live(engine, 2).block_table.block_ids == []
    assert live(engine, 1).status is SequenceStatus.RUNNING
    events = run_until_done(engine)
    assert len([e for e in events if e.finish_reason is FinishReason.LENGTH]) == 2


def test_recomputed_tokens_are_counted_apart():
    engine = make_engine(total_blocks=6, token_budget=64, prefix_caching=False)
    engine.submit(make_request(8, 12))
    engine.submit(make_request(8, 12))
    while not engine.accounts().preemptions:
        engine.step()
    victim = live(engine, 2)
    lost = victim.recompute_until

    run_until_done(engine)

    assert victim.num_preemptions == 1
    assert victim.recomputed_tokens == lost
    # Its last token was sampled and never fed back.
    assert victim.computed_tokens == victim.num_tokens - 1 + lost


def test_a_watermark_keeps_blocks_for_those_that_run():
    engine = make_engine(total_blocks=10, watermark_ratio=0.3, token_budget=64)
    engine.submit(make_request(16, 8))
    engine.submit(make_request(16, 8))
    engine.step()

    assert engine.num_running == 1  # 4 of 10 in use, 4 more would leave 2 of 3


def test_without_others_running_there_is_no_watermark():
    engine = make_engine(total_blocks=10, watermark_ratio=0.3, token_budget=64)
    engine.submit(make_request(36, 4))
    engine.step()

    assert engine.num_running == 1


def queued(engine):
    engine.submit(make_request(40, 4))
    engine.step()
    return engine.submit(make_request(40, 4)).seq_id


def prefilling(engine):
    seq_id = engine.submit(make_request(40, 4)).seq_id
    engine.step()
    assert live(engine, seq_id).prefilling
    return seq_id


def decoding(engine):
    seq_id = engine.submit(make_request(4, 9)).seq_id
    engine.step()
    assert not live(engine, seq_id).prefilling
    return seq_id


def preempted(engine):
    for _ in range(3):
        engine.submit(make_request(16, 20))
    while not engine.accounts().preemptions:
        engine.step()
    return next(s.seq_id for s in engine._scheduler.waiting if s.num_preemptions)


@pytest.mark.parametrize("reach", [queued, prefilling, decoding, preempted])
def test_a_cancelled_sequence_gives_all_its_blocks_back_at_once(reach):
    engine = make_engine()
    seq_id = reach(engine)
    others = [seq for seq in engine._scheduler.live.values() if seq.seq_id != seq_id]

    assert engine.cancel(seq_id)

    engine.check()
    held = {block for seq in others for block in seq.block_table.block_ids}
    assert engine.accounts().active_blocks == len(held)
    assert not engine.cancel(seq_id), "it is not live any more"
    run_until_done(engine)
    assert engine.accounts().finished_by_reason["cancelled"] == 1
    assert engine.accounts().active_blocks == 0


def test_an_idle_engine_still_states_audits_and_heartbeats():
    clock = VirtualClock()
    engine = make_engine(clock=clock)
    for _ in range(3):
        clock.advance(1_000_000_000)
        engine.tick()
        engine.tick()

    acts = engine.accounts().acts
    assert acts[Kind.POOL] == acts[Kind.HEARTBEAT] == 4  # the first one at the start


def test_filled_slots_count_each_active_block_once():
    engine = make_engine(token_budget=64)
    engine.submit(make_request(14, 4, prefix="abc"))
    engine.step()
    engine.submit(make_request(13, 4, prefix="abc"))
    engine.step()

    first, second = live(engine, 1), live(engine, 2)
    assert second.computed_from == 12
    held = {*first.block_table.block_ids, *second.block_table.block_ids}
    filled = engine._reports.filled_slots(len(held))
    # 12 shared slots, then 3 computed tokens of the first and 1 of the second.
    assert filled == 12 + (first.num_computed_tokens - 12) + (second.num_computed_tokens - 12)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=8),
    total_blocks=st.integers(13, 20),
    budget=st.sampled_from([4, 7, 16]),
    caching=st.booleans(),
)
def test_every_request_ends_with_all_its_tokens_whatever_the_pressure(
    lengths, total_blocks, budget, caching
):
    engine = make_engine(total_blocks=total_blocks, token_budget=budget, prefix_caching=caching)
    for prompt, output in lengths:
        engine.submit(make_request(prompt, output, prefix="abcdef"))

    events = run_until_done(engine)

    counts = [sum(e.seq_id == i + 1 for e in events) for i in range(len(lengths))]
    assert counts == [output for _, output in lengths]
    assert engine.accounts().active_blocks == 0
