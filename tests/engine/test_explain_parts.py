"""The parts of an explanation: fitted speeds, settings, requests at other times, shares."""

import numpy as np
import pytest

from engine.block_hashers import mix
from engine.explain.errors import CannotBeExplained
from engine.explain.replay import FirstTokenTimes
from engine.explain.settings import settings_of
from engine.explain.shapley import shapley_matrix
from engine.explain.speeds import cost_model, fit_speeds
from engine.explain.traffic import Contents, recut
from engine.explain.uncertainty import NUM_BLOCKS, block_sums, drawn_means
from kvpulse.window_recording import REQUEST_FIELDS, STEP_FIELDS, UNKNOWN, WindowRecording

NS = 1_000_000_000


def recording_of(*, steps=None, requests=None, hashes=(), window_ns=100 * NS, fingerprint=None):
    rows = requests or []
    return WindowRecording(
        window_ns,
        fingerprint or {},
        {name: np.array([row[name] for row in rows], np.int64) for name in REQUEST_FIELDS},
        np.array(hashes, np.uint64),
        steps or {name: np.zeros(0, np.int64) for name in STEP_FIELDS},
    )


def request(at_ns=0, **said):
    plain = dict.fromkeys(REQUEST_FIELDS, 0) | {"arrived_ns": at_ns, "prompt_tokens": 64}
    plain |= {"max_tokens": 8, "output_tokens": 4, "cancelled_ns": UNKNOWN, "first_token_ns": NS}
    return plain | said


def steps_of(*, num=4_000, noise=0.05, squared=0.0, seed=3):
    source = np.random.default_rng(seed)
    prefill = source.integers(0, 2_048, num) * (source.random(num) < 0.4)
    decode = source.integers(1, 32, num)
    context = decode * source.integers(200, 2_000, num) + prefill
    took = 6e6 + 10_000 * prefill + 20_000 * decode + 20 * context + squared * prefill**2
    took *= source.normal(1, noise, num)
    columns = (prefill, decode, context, took.astype(np.int64))
    return dict(zip(STEP_FIELDS, columns, strict=True))


def test_speeds_are_those_of_the_steps_whatever_their_noise():
    speeds = fit_speeds(recording_of(steps=steps_of()))

    assert speeds.base_ns == pytest.approx(6e6, rel=0.03)
    assert speeds.prefill_token_ns == pytest.approx(10_000, rel=0.03)
    assert speeds.decode_token_ns == pytest.approx(20_000, rel=0.3)
    assert speeds.context_token_ns == pytest.approx(20, rel=0.1)
    assert speeds.noise_ratio == pytest.approx(0.05, rel=0.1)


def test_a_cost_that_the_fit_lacks_goes_to_the_term_next_to_it():
    speeds = fit_speeds(recording_of(steps=steps_of(squared=1.0)))

    assert 10_000 < speeds.prefill_token_ns < 12_500
    assert speeds.base_ns == pytest.approx(6e6, rel=0.15)


def test_no_cost_is_below_zero():
    steps = steps_of(noise=0.0)
    steps["total_ns"] = 30_000_000 - 300 * steps["decode_tokens"]

    speeds = fit_speeds(recording_of(steps=steps))

    assert min(speeds.prefill_token_ns, speeds.decode_token_ns, speeds.context_token_ns) >= 0


def test_too_few_steps_are_not_fitted():
    with pytest.raises(CannotBeExplained, match="only 100 steps"):
        fit_speeds(recording_of(steps=steps_of(num=100)))


def test_prefill_is_one_engines_and_all_else_the_others():
    one, other = (fit_speeds(recording_of(steps=steps_of(seed=seed))) for seed in (1, 2))

    cost = cost_model(one, other)

    assert cost.prefill_token_ns == one.prefill_token_ns
    assert cost.base_ns == round(other.base_ns)
    assert cost.decode_sequence_ns == other.decode_token_ns


def stated(**changes):
    plain = {"total_blocks": 100, "block_size": 16, "max_batch": 8, "token_budget": 256}
    plain |= {"max_queue": 32, "max_context": 2_048, "watermark_blocks": 7, "prefix_index": "hash"}
    return plain | {"kv_groups": 1, "preemption": "recompute", "host_blocks": 0} | changes


def test_the_engine_is_the_one_that_was_stated():
    config = settings_of(stated()).config

    assert config.watermark_blocks == 7
    assert (config.total_blocks, config.block_size, config.max_batch) == (100, 16, 8)
    assert config.prefix_caching
    assert not settings_of(stated(prefix_caching=False)).config.prefix_caching
    assert settings_of(stated(sliding_window=512)).sliding_window == 512
    assert settings_of(stated(policy="aging_ns=1")).not_replayed == "policy aging_ns=1"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_batch": None}, "states no max_batch"),
        ({"kv_groups": 2}, "several KV groups"),
        ({"total_blocks": 1 << 40}, "more than 8,388,608 blocks"),
        ({"token_budget": 2}, "token_budget"),
    ],
)
def test_an_engine_that_cannot_be_replayed_is_refused(changes, told):
    with pytest.raises(CannotBeExplained, match=told):
        settings_of(stated(**changes))


def test_requests_beyond_the_last_begin_again_with_what_they_share_and_without_what_is_their_own():
    rows = [request(num_hashes=2), request(NS, num_hashes=2, deadline_ns=5 * NS)]
    one = recording_of(requests=rows, hashes=[7, 8, 7, 9])

    contents = Contents.of(one, 16, 100 * NS)

    first = contents.request(0, at_ns=0, block_size=16).request.simulated.block_hashes
    again = contents.request(2, at_ns=3 * NS, block_size=16).request.simulated.block_hashes
    assert list(first) == [7, 8]
    assert again[0] == 7
    assert again[1] not in {8, 9}
    late = contents.request(3, at_ns=9 * NS, block_size=16)
    assert late.at_ns == 9 * NS
    assert late.request.deadline_ns == 14 * NS


def test_a_client_that_left_leaves_as_long_after_its_arrival_and_would_have_gone_on():
    rows = [request(), request(2 * NS, output_tokens=UNKNOWN, cancelled_ns=5 * NS)]

    contents = Contents.of(recording_of(requests=rows), 16, 100 * NS)

    moved = contents.request(1, at_ns=50 * NS, block_size=16)
    assert moved.cancel_at_ns == 53 * NS
    assert moved.request.simulated.num_output_tokens == 8


def test_blocks_of_another_size_are_shared_where_the_recorded_ones_are():
    one, other = [1, 2, 3, 4], [1, 2, 9, 8]

    assert recut(one, 16, 32, 2)[0] == recut(other, 16, 32, 2)[0] == mix(2 ^ mix(0))
    assert recut(one, 16, 32, 2)[1] != recut(other, 16, 32, 2)[1]
    small = [recut(hashes, 16, 8, 8) for hashes in (one, other)]
    assert small[0][:4] == small[1][:4]
    assert not set(small[0][4:]) & set(small[1][4:])
    assert len(set(small[0])) == 8


def test_shares_add_up_and_are_fair():
    matrix = shapley_matrix(3)
    # 0 alone gives 6; 1 and 2 give 4, but only together.
    values = np.array([6 * (c & 1) + 4 * (c & 6 == 6) for c in range(8)], float)

    assert (values @ matrix).tolist() == pytest.approx([6, 2, 2])
    five = np.random.default_rng(1).normal(size=32)
    assert (five @ shapley_matrix(5)).sum() == pytest.approx(five[31] - five[0])


def test_only_the_measured_part_of_a_window_counts():
    arrived = np.array([5, 10, 50, 94, 96]) * NS
    times = FirstTokenTimes(arrived, np.array([9, 1, 2, 3, 9]) * NS)

    sums = block_sums(times, 100 * NS)

    assert sums.num.sum() == 3
    assert sums.mean == pytest.approx(2.0)
    assert len(sums.num) == NUM_BLOCKS


def test_replays_at_the_same_times_get_the_same_draw():
    source = np.random.default_rng(2)
    times = FirstTokenTimes(np.arange(1_000) * NS // 10, source.integers(NS, 2 * NS, 1_000))
    sums = block_sums(times, 100 * NS)
    slower = block_sums(FirstTokenTimes(times.arrived_ns, times.ttft_ns + NS), 100 * NS)

    means = drawn_means([sums, slower, slower], [False, False, True])

    assert np.ptp(means[:, 1] - means[:, 0]) < 1e-9
    assert np.std(means[:, 2] - means[:, 0]) > 0.001
