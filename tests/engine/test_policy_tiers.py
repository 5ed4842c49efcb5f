"""Tiers: their own context cap, step budget, watermark and queue; whose cached blocks go first."""

import pytest

from engine.errors import ConfigError
from engine.policy.scheduling_policy import SchedulingPolicy, TierPolicy
from kvpulse.events import RejectReason, WaitCause
from tests.engine.factories_engine import hash_of, run_until_done
from tests.engine.factories_policy import Watched, ask


def with_batch(**limits):
    return {"batch": TierPolicy(**limits)}


def tokens_of(watched):
    """Run one step and return how many tokens of each sequence it ran."""
    planned = {}
    execute = watched.engine._runner.execute

    def seen(plan):
        pairs = zip(plan.sequences, plan.num_new_tokens, strict=True)
        planned.update({seq.seq_id: n for seq, n in pairs})
        return execute(plan)

    watched.engine._runner.execute = seen
    watched.step()
    watched.engine._runner.execute = execute
    return planned


def test_a_tier_has_a_context_of_its_own():
    watched = Watched(total_blocks=32, policy=with_batch(max_context=16))

    rejection = watched.submit(ask(16, 4, tier=1)).rejection

    assert rejection.reason is RejectReason.CONTEXT_TOO_LONG
    assert (rejection.needed, rejection.limit, rejection.http_status) == (16, 16, 400)
    assert watched.submit(ask(16, 4, tier=0)).accepted


def test_max_tokens_is_clamped_to_the_cap_of_tier_or_request():
    watched = Watched(policy={**with_batch(max_context=16), "max_request_tokens": 20})
    watched.submit(ask(12, 40, tier=1))
    watched.submit(ask(12, 40, tier=0))

    watched.finish()

    assert watched.tokens == {1: 4, 2: 8}


def test_a_request_longer_than_the_cap_of_requests_is_refused():
    watched = Watched(policy={"max_request_tokens": 20})

    assert watched.submit(ask(20, 4)).rejection.reason is RejectReason.CONTEXT_TOO_LONG
    assert watched.submit(ask(19, 4)).accepted


def test_a_tiers_prefill_takes_no_more_of_a_step_than_its_budget():
    watched = Watched(token_budget=16, policy=with_batch(step_tokens=6))
    watched.submit(ask(20, 4, tier=1))
    watched.submit(ask(20, 4, tier=0))

    assert [tokens_of(watched) for _ in range(3)] == [{2: 16}, {2: 4, 1: 6}, {2: 1, 1: 6}]


def test_decodes_of_a_tier_count_in_its_budget_and_always_fit():
    watched = Watched(total_blocks=32, token_budget=16, policy=with_batch(step_tokens=3))
    for _ in range(3):
        watched.submit(ask(1, 8, tier=1))
    watched.step()
    watched.submit(ask(8, 4, tier=1))
    watched.step()

    assert [seq.num_output_tokens for seq in watched.live[:3]] == [2, 2, 2]
    watched.step()
    assert [seq.num_output_tokens for seq in watched.live[:3]] == [3, 3, 3]
    assert watched.scheduler.waiting[0].wait_cause is WaitCause.TOKEN_BUDGET


def test_whoever_waits_for_its_tiers_budget_lets_the_other_tier_pass():
    watched = Watched(
        total_blocks=32,
        token_budget=16,
        policy={**with_batch(step_tokens=1), "batch_patience_ns": 0},
    )
    watched.submit(ask(4, 8, tier=1))
    for _ in range(4):
        watched.step()
    watched.submit(ask(4, 8, tier=1))
    watched.submit(ask(4, 8, tier=0))

    watched.step()

    assert [seq.seq_id for seq in watched.scheduler.running] == [1, 3]
    watched.finish()


def test_a_tier_leaves_its_own_watermark_alone():
    watched = Watched(total_blocks=20, token_budget=64, policy=with_batch(watermark_ratio=0.5))
    watched.submit(ask(20, 8))
    watched.submit(ask(28, 4, tier=1))  # 7 of 15, which would leave 8 of 10
    watched.submit(ask(28, 4, tier=0))

    watched.step()

    assert [seq.seq_id for seq in watched.scheduler.running] == [1, 3]
    assert watched.scheduler.waiting[0].wait_cause is WaitCause.POOL
    watched.finish()


def test_a_tier_has_a_queue_of_its_own():
    watched = Watched(policy=with_batch(max_queue=1))
    watched.submit(ask(tier=1))

    rejection = watched.submit(ask(tier=1)).rejection

    assert rejection.reason is RejectReason.QUEUE_FULL
    assert (rejection.needed, rejection.limit) == (2, 1)
    assert watched.submit(ask(tier=0)).accepted


def test_what_the_batch_tier_left_in_the_cache_goes_first():
    watched = Watched(total_blocks=8, token_budget=64)
    watched.submit(ask(9, 1, prefix="xy", tier=0))
    run_until_done(watched.engine)
    watched.submit(ask(9, 1, prefix="ab", tier=1))
    run_until_done(watched.engine)

    watched.submit(ask(22, 2))  # 6 of 8 blocks; 4 are cached
    watched.step()

    pool = watched.engine._pool
    assert pool.block_with(hash_of("x")) is not None
    assert pool.block_with(hash_of("a")) is None


@pytest.mark.parametrize(
    ("policy", "fields", "name"),
    [
        (TierPolicy, {"max_context": 1}, "max_context"),
        (TierPolicy, {"step_tokens": 0}, "step_tokens"),
        (TierPolicy, {"watermark_ratio": 1.5}, "watermark_ratio"),
        (
            SchedulingPolicy,
            {"high_watermark_ratio": 0.5, "low_watermark_ratio": 0.6},
            "low_watermark_ratio",
        ),
        (SchedulingPolicy, {"low_watermark_ratio": 0.6}, "low_watermark_ratio"),
        (SchedulingPolicy, {"aging_ns": -1}, "aging_ns"),
        (SchedulingPolicy, {"max_request_tokens": 1}, "max_request_tokens"),
    ],
)
def test_a_policy_that_cannot_hold_is_a_configuration_error(policy, fields, name):
    with pytest.raises(ConfigError) as caught:
        policy(**fields)

    assert caught.value.name == name
