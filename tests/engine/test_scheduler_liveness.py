"""Nobody who can be served waits for ever, and giving way never becomes all that happens."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.scheduling_policy import PreemptionPolicy, TenantPolicy, TierPolicy
from tests.engine.factories_policy import MS, SECOND, WINDOWS, Watched, ask, with_windows

TENANTS = {"capped": TenantPolicy(max_blocks=10), "sure": TenantPolicy(reserved_blocks=4)}
SETTINGS = st.fixed_dictionaries(
    {
        "total_blocks": st.integers(18, 26),
        "max_batch": st.integers(2, 6),
        "token_budget": st.sampled_from([8, 24]),
        "watermark_ratio": st.sampled_from([0.0, 0.2]),
        "prefix_index": st.sampled_from(["hash", "radix", "off"]),
        "windows": st.sampled_from(WINDOWS),
        "host_blocks": st.just(12),
        "preemption": st.sampled_from(list(PreemptionPolicy)),
        "policy": st.fixed_dictionaries(
            {
                "aging_ns": st.sampled_from([100 * MS, SECOND]),
                "batch_patience_ns": st.sampled_from([100 * MS, SECOND]),
                "fairness_ns_per_token": st.sampled_from([0, MS]),
                "protected_tokens": st.integers(0, 4),
                "batch": st.sampled_from([TierPolicy(), TierPolicy(step_tokens=6)]),
                "tenants": st.sampled_from([{}, TENANTS]),
            }
        ),
    }
).map(with_windows)
REQUESTS = st.builds(
    ask,
    prompt_tokens=st.integers(1, 20),
    max_tokens=st.integers(1, 20),
    prefix=st.sampled_from(["", "ab"]),
    tenant=st.sampled_from(["capped", "sure", "other"]),
    tier=st.integers(0, 1),
    priority=st.integers(-2, 2),
    sampling=st.sampled_from([{}, {}, {"n": 2}, {"beam_width": 2}]),
)


def rival(source):
    """Return one more request out of an endless stream, mostly more urgent than others."""
    return ask(
        source.randrange(1, 16),
        source.randrange(1, 16),
        tenant=source.choice(["capped", "sure", "other"]),
        tier=source.choice([0, 0, 0, 1]),
        priority=source.choice([-2, -2, 0]),
    )


@settings(max_examples=60, deadline=None)
@given(config=SETTINGS, requests=st.lists(REQUESTS, min_size=1, max_size=14))
def test_whatever_was_taken_ends_within_a_bounded_number_of_steps(config, requests):
    watched = Watched(**config)
    num_tokens = 0
    for request in requests:
        if watched.submit(request).accepted:
            k = request.sampling.num_sequences
            num_tokens += k * (request.num_prompt_tokens + request.sampling.max_tokens)
        watched.step()

    watched.finish(most_steps=3 * num_tokens + 50)


@settings(max_examples=25, deadline=None)
@given(config=SETTINGS, request=REQUESTS, seed=st.integers(0, 1_000))
def test_an_endless_stream_of_more_urgent_requests_keeps_nobody_waiting_for_ever(
    config, request, seed
):
    source = random.Random(seed)
    watched = Watched(**config)
    watched.submit(rival(source))
    root = watched.submit(request).seq_id
    for _ in range(1_500):
        if watched.engine.num_waiting < 3:
            watched.submit(rival(source))
        watched.step()
        if not any(seq.root_id == root for seq in watched.live):
            return

    raise AssertionError(f"{root} still waits behind others: {watched.live}")


@settings(max_examples=40, deadline=None)
@given(config=SETTINGS, seed=st.integers(0, 1_000))
def test_however_often_somebody_gives_way_new_tokens_go_on_coming(config, seed):
    source = random.Random(seed)
    watched = Watched(**config)
    most = 0  # tokens of any live sequence: beams are told of at their end only
    idle_steps = 0
    for number in range(150):
        if number % 3 == 0 and watched.engine.num_waiting < 6:
            watched.submit(rival(source))
        before = {seq.seq_id: seq.num_tokens for seq in watched.live}
        watched.step()
        grown = any(seq.num_tokens > before.get(seq.seq_id, 1 << 30) for seq in watched.live)
        ended = len(before.keys() - {seq.seq_id for seq in watched.live})
        idle_steps = 0 if grown or ended or not before else idle_steps + 1
        most = max(most, idle_steps)

    # A prompt of 16 tokens beside running ones may take 8 steps, and be preempted on its way.
    assert most <= 16
