"""The stated cause is true under tiers, quotas and requests of several samples too."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.scheduling_policy import SchedulingPolicy, TenantPolicy, TierPolicy
from kvpulse.events import WaitCause, WaitFlag
from tests.engine.factories_engine import make_engine
from tests.engine.factories_policy import ask
from tests.engine.factories_waits import admitted_at_the_end, one_step

POLICY = SchedulingPolicy(
    aging_ns=200_000_000,
    batch_patience_ns=400_000_000,
    preempt_for_waiting=False,
    batch=TierPolicy(step_tokens=6, watermark_ratio=0.15),
    tenants={"capped": TenantPolicy(max_blocks=8), "sure": TenantPolicy(reserved_blocks=3)},
)
REQUESTS = st.lists(
    st.builds(
        ask,
        prompt_tokens=st.integers(1, 20),
        max_tokens=st.integers(1, 10),
        prefix=st.sampled_from(["", "ab", "abc"]),
        tenant=st.sampled_from(["capped", "sure", "other"]),
        tier=st.integers(0, 1),
        priority=st.integers(-1, 1),
        sampling=st.sampled_from([{}, {}, {"n": 2}, {"n": 3}]),
    ),
    min_size=4,
    max_size=12,
)
LIMITS = st.fixed_dictionaries(
    {
        "total_blocks": st.integers(15, 20),
        "max_batch": st.integers(3, 6),
        "token_budget": st.sampled_from([9, 16, 64]),
        "watermark_ratio": st.sampled_from([0.0, 0.1]),
        "prefix_index": st.sampled_from(["off", "hash"]),
    }
)


@settings(max_examples=40, deadline=None)
@given(requests=REQUESTS, limits=LIMITS, pause=st.integers(0, 2))
def test_only_one_behind_another_would_be_admitted_alone(requests, limits, pause):
    engine = make_engine(policy=POLICY, **limits)
    for request in requests:
        engine.submit(request)
        for _ in range(pause):
            for before in one_step(engine, ()):
                check_verdicts(before)
    for _ in range(12):
        for before in one_step(engine, ()):
            check_verdicts(before)


def check_verdicts(before):
    for seq in before.verdicts:
        alone = admitted_at_the_end(before, seq.seq_id)
        only_behind = seq.wait_blocker and seq.wait_flags.bit_count() == 1
        assert alone == bool(only_behind), f"{seq}: {WaitFlag(seq.wait_flags)!r}"


def test_whoever_needs_several_places_keeps_those_behind_from_slipping_past():
    engine = make_engine(max_batch=4, total_blocks=40)
    engine.submit(ask(4, 8, sampling={"n": 2}))
    engine.submit(ask(4, 8, sampling={"n": 3}))
    engine.submit(ask(4, 8))

    engine.step()

    waiting = engine._scheduler.waiting
    assert [seq.wait_cause for seq in waiting] == [WaitCause.BATCH_SLOTS] * 2
    assert [seq.wait_blocker for seq in waiting] == [0, 2]
