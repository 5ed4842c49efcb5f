"""Deadlines, the watermark gate, what never fits, and a model that runs out of memory."""

import pytest

from engine.errors import ConfigError, StepMemoryError
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.runner import NO_TOKEN
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason, Kind, RejectReason
from tests.engine.factories_engine import make_engine, make_request
from tests.engine.factories_policy import MS, Watched, ask


def heard(watched, event):
    """Let the engine tick at its deadline and return what it says."""
    watched.clock.advance(event)
    return watched.engine.tick()


def test_a_request_that_waits_too_long_for_blocks_is_rejected():
    watched = Watched(total_blocks=10, token_budget=64)
    watched.submit(ask(32, 8))
    watched.submit(ask(32, 4, queue_deadline_ns=50 * MS))
    watched.step()

    events = heard(watched, 50 * MS)

    assert events == [TokenEvent(2, NO_TOKEN, FinishReason.REJECTED, 2)]
    rejection = watched.engine.rejections.pop(2)
    assert rejection.reason is RejectReason.POOL_TIMEOUT
    assert (rejection.needed, rejection.limit) == (8, 2)
    assert (rejection.http_status, rejection.retryable) == (503, True)
    watched.dropped.add(2)
    watched.finish()
    assert watched.engine.accounts().rejected_by_reason == {"pool_timeout": 1}


def test_one_that_waits_too_long_for_a_place_misses_its_deadline():
    watched = Watched(max_batch=1, policy={"queue_timeout_ns": 50 * MS})
    watched.submit(ask(8, 30))
    watched.submit(ask())
    watched.step()

    heard(watched, 50 * MS)

    rejection = watched.engine.rejections[2]
    assert (rejection.reason, rejection.http_status) == (RejectReason.DEADLINE, 504)
    assert 1 in watched.scheduler.live, "it ran in time"


def test_the_earlier_of_policy_and_request_counts():
    watched = Watched(max_batch=1, policy={"queue_timeout_ns": 500 * MS})
    watched.submit(ask(8, 30))
    watched.submit(ask(queue_deadline_ns=60 * MS))
    watched.submit(ask(queue_deadline_ns=900 * MS))
    watched.step()

    assert watched.engine.next_deadline_ns == 60 * MS
    assert [event.root for event in heard(watched, 60 * MS)] == [2]
    assert [event.root for event in heard(watched, 500 * MS)] == [3]


def test_a_request_whose_time_is_up_ends_with_what_it_has():
    watched = Watched()
    watched.submit(ask(8, 40, deadline_ns=100 * MS))
    while watched.engine.has_work:
        watched.step()

    assert watched.whole_ends == {1: 1}
    assert 3 < watched.tokens[1] < 40
    assert watched.engine.accounts().finished_by_reason == {"timeout": 1}
    assert watched.engine._pool.num_active == 0


def test_a_request_that_prefills_when_its_time_is_up_was_not_rejected():
    watched = Watched(token_budget=4)
    watched.submit(ask(40, 4, deadline_ns=50 * MS))
    while watched.engine.has_work:
        watched.step()

    assert watched.tokens[1] == 0
    assert watched.engine.accounts().finished_by_reason == {"timeout": 1}


@pytest.mark.parametrize("sampling", [{"n": 3}, {"beam_width": 2}])
def test_all_samples_of_a_request_run_out_of_time_together(sampling):
    watched = Watched(total_blocks=40)
    watched.submit(ask(8, 20, sampling=sampling, deadline_ns=100 * MS))
    for _ in range(3):
        watched.step()
    assert len(watched.live) > 1

    events = heard(watched, 100 * MS)

    assert events == [TokenEvent(1, NO_TOKEN, FinishReason.TIMEOUT, 1)]
    assert not watched.engine.has_work
    assert watched.engine._pool.num_active == 0


def test_a_full_pool_closes_the_gate_until_it_is_well_below():
    watched = Watched(
        total_blocks=20, policy={"high_watermark_ratio": 0.5, "low_watermark_ratio": 0.25}
    )
    watched.submit(ask(28, 12))
    watched.submit(ask(16, 8))
    while watched.engine._pool.num_active <= 10:
        watched.step()

    rejection = watched.submit(ask(4, 4)).rejection
    assert rejection.reason is RejectReason.ABOVE_WATERMARK
    assert (rejection.needed, rejection.limit) == (11, 10)
    assert (rejection.http_status, rejection.retryable) == (503, True)

    while watched.engine._pool.num_active > 10:
        watched.step()
    assert not watched.submit(ask(4, 4)).accepted, "below the high one is not enough"
    watched.finish()
    assert watched.submit(ask(4, 4)).accepted


def test_the_gate_opens_and_closes_while_nobody_comes():
    policy = {"high_watermark_ratio": 0.5, "low_watermark_ratio": 0.25}
    watched = Watched(total_blocks=20, max_batch=1, policy=policy)
    pool = watched.engine._pool
    watched.submit(ask(40, 6))
    watched.submit(ask(4, 24))  # one block, growing to seven
    while pool.num_active > 5 or not pool.num_active:
        watched.step()
    while pool.num_active < 6:
        watched.step()
    assert watched.submit(ask(4, 4)).accepted, "it was below the low one since"

    watched = Watched(total_blocks=20, policy=policy)
    pool = watched.engine._pool
    watched.submit(ask(28, 12))
    watched.submit(ask(16, 8))
    while pool.num_active <= 10:
        watched.step()
    while pool.num_active > 10:
        watched.step()
    assert not watched.submit(ask(4, 4)).accepted, "it was above the high one since"


def test_after_the_pool_shrank_what_can_never_fit_is_rejected_and_the_rest_goes_on():
    watched = Watched(total_blocks=16, token_budget=64)
    watched.submit(ask(20, 4))
    watched.step()
    watched.submit(ask(40, 8))
    watched.submit(ask(20, 4))
    watched.engine._pool.withdraw(6)

    watched.step()

    assert watched.whole_ends == {2: 1}
    watched.finish()
    assert watched.engine.accounts().rejected_by_reason == {"exceeds_pool": 1}


def test_a_running_sequence_that_outgrows_a_shrunken_pool_ends_with_an_error():
    watched = Watched(total_blocks=16, token_budget=64)
    watched.submit(ask(20, 40))
    watched.step()
    watched.engine._pool.withdraw(9)

    watched.finish()

    assert watched.engine.accounts().finished_by_reason == {"error": 1}
    assert watched.tokens[1] > 0


def failing_above(watched, most_tokens):
    """Let the model run out of memory in steps of more tokens than that."""
    execute = watched.engine._runner.execute
    sizes = []

    def run(plan):
        sizes.append(sum(plan.num_new_tokens))
        if sizes[-1] > most_tokens:
            raise StepMemoryError("a test says so")
        return execute(plan)

    watched.engine._runner.execute = run
    return sizes


def test_after_a_step_without_memory_smaller_ones_follow():
    watched = Watched(token_budget=32)
    sizes = failing_above(watched, 10)
    for _ in range(2):
        watched.submit(ask(20, 4))

    watched.finish()

    assert sizes[:3] == [32, 16, 8]
    assert max(sizes[2:]) == 8
    assert watched.engine.accounts().finished_by_reason == {"length": 2}


def test_fewer_sequences_run_when_even_their_decodes_need_too_much():
    watched = Watched(total_blocks=40, max_batch=4)
    failing_above(watched, 2)
    for _ in range(4):
        watched.submit(ask(1, 6))

    watched.finish()

    assert watched.engine.accounts().finished_by_reason == {"length": 4}
    assert "the model ran out of memory" in str(watched.scheduler.latest_preemptions[0])


def test_a_request_that_cannot_run_even_alone_is_rejected_and_the_engine_lives():
    watched = Watched()
    failing_above(watched, 0)
    watched.submit(ask(8, 4))

    for _ in range(10):
        watched.step()

    assert watched.engine.accounts().rejected_by_reason == {"out_of_memory": 1}
    assert not watched.engine.has_work
    del watched.engine._runner.execute
    watched.submit(ask(8, 4))
    watched.finish()


def test_the_step_grows_again_after_a_run_of_good_ones():
    watched = Watched(token_budget=32)
    failing_above(watched, 20)
    watched.submit(ask(40, 4))
    watched.step()
    assert watched.scheduler.pressure.token_budget == 16

    del watched.engine._runner.execute
    for _ in range(30):
        watched.submit(ask(4, 4))
        watched.finish()

    assert watched.scheduler.pressure.token_budget == 32


def test_swapped_sequences_go_on_where_they_stopped():
    watched = Watched(
        total_blocks=6, token_budget=64, host_blocks=8, preemption=PreemptionPolicy.SWAP
    )
    for _ in range(2):
        watched.submit(ask(8, 12))
    watched.finish()

    accounts = watched.engine.accounts()
    assert accounts.preemptions > 0
    assert accounts.acts[Kind.SWAP_OUT] > 0
    assert {p.mode.name for p in watched.scheduler.latest_preemptions} == {"SWAP"}
    assert all(p.tokens_lost == 0 for p in watched.scheduler.latest_preemptions)
    assert watched.tokens == {1: 12, 2: 12}


def test_a_swapped_sequence_gives_its_host_blocks_back_when_it_is_cancelled():
    watched = Watched(
        total_blocks=6, token_budget=64, host_blocks=8, preemption=PreemptionPolicy.SWAP
    )
    for _ in range(2):
        watched.submit(ask(8, 12))
    while not watched.scheduler.latest_preemptions:
        watched.step()
    assert watched.engine._host_pool.num_active > 0

    watched.cancel(2)

    assert watched.engine._host_pool.num_active == 0
    watched.finish()


def test_auto_swaps_only_what_is_long_enough():
    watched = Watched(
        total_blocks=6,
        token_budget=64,
        host_blocks=8,
        preemption=PreemptionPolicy.AUTO,
        policy={"swap_min_tokens": 100},
    )
    for _ in range(2):
        watched.submit(ask(8, 12))
    watched.finish()

    assert {p.mode.name for p in watched.scheduler.latest_preemptions} == {"RECOMPUTE"}


def test_a_full_host_recomputes():
    watched = Watched(
        total_blocks=6, token_budget=64, host_blocks=1, preemption=PreemptionPolicy.SWAP
    )
    for _ in range(2):
        watched.submit(ask(8, 12))
    watched.finish()

    assert {p.mode.name for p in watched.scheduler.latest_preemptions} == {"RECOMPUTE"}


def test_swapping_without_host_blocks_is_a_configuration_error():
    with pytest.raises(ConfigError, match="host_blocks"):
        make_engine(preemption=PreemptionPolicy.SWAP)


def test_more_samples_than_the_batch_holds_are_an_invalid_request():
    rejection = make_engine(max_batch=2).submit(make_request(n=3)).rejection

    assert rejection.reason is RejectReason.INVALID_REQUEST
    assert "3 sequences" in rejection.message


def test_the_worst_case_of_all_samples_counts_their_shared_prompt_once():
    engine = make_engine(total_blocks=10, max_batch=8)

    # 2 full blocks of the prompt are shared; each of 4 samples may come to 3 more.
    rejection = engine.submit(make_request(10, 11, n=4)).rejection

    assert (rejection.reason, rejection.needed) == (RejectReason.EXCEEDS_POOL, 14)


def test_samples_that_memory_has_no_places_for_together_still_run_once_nobody_else_does():
    watched = Watched(total_blocks=40, max_batch=4)
    failing_above(watched, 2)
    watched.submit(ask(1, 30, sampling={"n": 4}))
    watched.submit(ask(1, 6, sampling={"beam_width": 2}))
    watched.submit(ask(1, 6, sampling={"n": 3}))

    watched.finish()

    assert watched.engine.accounts().rejected_by_reason == {}
    assert set(watched.engine.accounts().finished_by_reason) <= {"length", "stop"}


def test_ending_one_request_does_not_look_at_all_others():
    watched = Watched(max_queue=3_000)
    for _ in range(2_000):
        watched.engine.submit(ask(4, 4))

    class Unread(dict):
        def values(self):
            raise AssertionError("all that is live was gone through")

    scheduler = watched.scheduler
    scheduler._lineup.live = Unread(scheduler.live)
    assert watched.engine.cancel(1_000)
    assert not watched.engine.cancel(1_000)
    assert scheduler.endings.sequences_of(1_001) == [scheduler.live[1_001]]
