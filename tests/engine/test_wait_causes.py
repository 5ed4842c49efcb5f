"""Each waiting sequence has one cause, and the cause is true."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpulse.events import Kind, WaitCause, WaitFlag
from tests.engine.factories_engine import make_engine, make_request
from tests.engine.factories_policy import WINDOWS, with_windows
from tests.engine.factories_waits import admitted_alone, one_step


def causes(engine):
    return {seq.seq_id: seq.wait_cause for seq in engine._scheduler.waiting}


def test_a_sequence_that_arrived_during_a_step_finds_the_engine_busy():
    engine = make_engine()

    engine.submit(make_request())

    assert causes(engine) == {1: WaitCause.ENGINE_BUSY}


def test_a_full_batch_makes_the_next_one_wait_for_a_slot():
    engine = make_engine(max_batch=2)
    for _ in range(3):
        engine.submit(make_request(4, 4))

    engine.step()

    assert causes(engine) == {3: WaitCause.BATCH_SLOTS}


def test_a_spent_budget_makes_the_next_one_wait_for_it():
    engine = make_engine(token_budget=8)
    engine.submit(make_request(16, 4))
    engine.submit(make_request(4, 4))

    engine.step()

    assert causes(engine) == {2: WaitCause.TOKEN_BUDGET}


def test_one_that_would_fit_behind_one_that_waits_for_blocks_names_its_blocker():
    engine = make_engine(total_blocks=10, token_budget=64)
    engine.submit(make_request(24, 8))
    engine.submit(make_request(32, 4))
    engine.submit(make_request(4, 4))

    engine.step()

    assert causes(engine) == {2: WaitCause.POOL, 3: WaitCause.POOL_BEHIND}
    assert engine._scheduler.waiting[1].wait_blocker == 2


def test_a_full_batch_is_the_cause_even_where_blocks_are_short_too():
    engine = make_engine(total_blocks=10, token_budget=64, max_batch=1)
    engine.submit(make_request(24, 8))
    engine.submit(make_request(32, 4))

    engine.step()

    (seq,) = engine._scheduler.waiting
    assert seq.wait_cause == WaitCause.BATCH_SLOTS
    assert seq.wait_flags == WaitFlag.BATCH_SLOTS | WaitFlag.POOL


def test_shared_active_blocks_are_not_asked_of_the_pool():
    engine = make_engine(total_blocks=8, token_budget=64)
    engine.submit(make_request(20, 8, prefix="abcde"))
    engine.step()
    engine.submit(make_request(20, 4, prefix="abcde"))

    engine.step()

    # 5 of 8 blocks are active; the second needs 5, 4 of which it shares.
    assert causes(engine) == {}


def test_a_verdict_follows_the_blocks_it_could_share():
    engine = make_engine(total_blocks=8, token_budget=64)
    engine.submit(make_request(20, 12, prefix="abcde"))
    engine.submit(make_request(28, 4, prefix="abczzzz"))
    engine.step()
    assert causes(engine) == {2: WaitCause.POOL}

    engine.step()

    # The first step stored a, b and c: 28 tokens need 7 blocks, less 3 shared, of 3 free.
    assert causes(engine) == {2: WaitCause.POOL}
    assert engine._scheduler.waiting[0].wait_level == 4


def test_each_change_is_counted_once_and_an_unchanged_pass_states_nothing():
    engine = make_engine(total_blocks=10, token_budget=64)
    engine.submit(make_request(24, 12))
    engine.submit(make_request(32, 4))
    for _ in range(3):
        engine.step()

    # One `pool` verdict; the growth of the first changed nothing about it.
    assert engine.accounts().acts[Kind.WAIT] == 1


def test_a_flag_that_changes_below_an_unchanged_cause_is_kept_but_not_recorded():
    engine = make_engine(total_blocks=10, token_budget=8)
    engine.submit(make_request(24, 12))
    engine.submit(make_request(32, 4))

    engine.step()
    (seq,) = engine._scheduler.waiting
    assert seq.wait_flags == WaitFlag.POOL | WaitFlag.TOKEN_BUDGET
    for _ in range(3):
        engine.step()

    assert seq.wait_flags == WaitFlag.POOL
    assert engine.accounts().acts[Kind.WAIT] == 1


REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 30),  # prompt
        st.integers(1, 14),  # output
        st.text("ab", max_size=6),  # shared beginning
        st.integers(0, 3),  # steps before the next arrival
        st.sampled_from([None, None, None, 1, 4]),  # cancel so many steps later
    ),
    min_size=1,
    max_size=12,
)
LIMITS = st.fixed_dictionaries(
    {
        "total_blocks": st.integers(11, 18),
        "max_batch": st.integers(1, 5),
        "token_budget": st.sampled_from([5, 9, 16, 64]),
        "watermark_ratio": st.sampled_from([0.0, 0.1, 0.3]),
        "prefix_index": st.sampled_from(["off", "hash", "radix"]),
        "windows": st.sampled_from(WINDOWS),
    }
).map(with_windows)


@settings(max_examples=40, deadline=None)
@given(requests=REQUESTS, limits=LIMITS)
def test_only_one_behind_a_pool_wait_would_be_admitted_alone(requests, limits):
    engine = make_engine(**limits)

    for before in drive(engine, requests):
        check_verdicts(before, engine)


def drive(engine, requests):
    """Step through the requests; yield the state before each pass, after the pass was made."""
    cancels = {}
    step = 0
    for prompt, output, prefix, pause, cancel_after in requests:
        admission = engine.submit(make_request(prompt, output, prefix=prefix))
        if cancel_after is not None:
            cancels.setdefault(step + cancel_after, []).append(admission.seq_id)
        for _ in range(pause):
            yield from one_step(engine, cancels.pop(step, ()))
            step += 1
    for _ in range(3_000):
        if not engine.has_work:
            break
        yield from one_step(engine, cancels.pop(step, ()))
        step += 1
    assert not engine.has_work
    assert engine.accounts().active_blocks == 0


def check_verdicts(before, engine):
    still_waiting = {seq.seq_id for seq in before.verdicts}
    for seq in before.verdicts:
        assert seq.wait_flags, f"{seq} has no cause"
        lowest = seq.wait_flags & -seq.wait_flags
        assert seq.wait_cause == lowest.bit_length()
        alone = admitted_alone(before, seq.seq_id, still_waiting)
        assert alone == (seq.wait_flags == WaitFlag.POOL_BEHIND), f"{seq}: {seq.wait_flags!r}"


@pytest.mark.parametrize("caching", [True, False])
def test_a_preempted_sequence_waits_at_the_head_of_the_queue(caching):
    engine = make_engine(total_blocks=6, token_budget=64, prefix_caching=caching)
    engine.submit(make_request(8, 12))
    engine.submit(make_request(8, 12))
    engine.submit(make_request(20, 4))
    while not engine.accounts().preemptions:
        engine.step()

    assert [seq.seq_id for seq in engine._scheduler.waiting] == [2, 3]
