"""A saved series comes back as it was, and damaged bytes are refused."""

from dataclasses import replace

import numpy as np
import pytest
import zstandard

from agent.baselines.codec import decode_series, encode_series
from agent.baselines.errors import BaselineDamaged
from tests.agent.factories_baselines import series, without


def test_a_series_comes_back_as_it_was():
    saved = without(series(1, num=100, rejected=np.nan), slice(3, 9))

    found = decode_series(encode_series(saved))

    assert (found.tier_seconds, found.start_ns) == (saved.tier_seconds, saved.start_ns)
    assert np.array_equal(found.is_counted, saved.is_counted)
    for name, values in saved.counters.items():
        assert np.array_equal(found.counters[name], values, equal_nan=True), name
    for name, lines in saved.latencies.items():
        for column in ("interval", "bucket", "count"):
            assert np.array_equal(getattr(found.latencies[name], column), getattr(lines, column))


def test_four_hours_take_less_than_half_a_megabyte():
    assert len(encode_series(series(1))) < 500_000


def test_damaged_bytes_are_refused_and_never_believed():
    blob = encode_series(series(1, num=50))
    source = np.random.default_rng(7)
    for _ in range(200):
        damaged = bytearray(blob)
        damaged[source.integers(len(blob))] ^= int(source.integers(1, 256))
        with pytest.raises(BaselineDamaged):
            decode_series(bytes(damaged))


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b'{"version": 9}\n',
        b'{"version": 1, "tier_seconds": 10, "start_ns": 5, "num_intervals": 0,'
        b' "counters": [], "latencies": {}}\n',
        b'{"version": 1, "tier_seconds": 10, "start_ns": 0, "num_intervals": 99999999,'
        b' "counters": [], "latencies": {}}\n',
        b'{"version": 1, "tier_seconds": 10, "start_ns": 0, "num_intervals": 1,'
        b' "counters": ["arrived"], "latencies": {}}\n1234',
    ],
)
def test_what_is_no_series_is_refused(plain):
    with pytest.raises(BaselineDamaged):
        decode_series(zstandard.compress(plain))


def test_a_series_that_unpacks_to_more_than_any_is_refused():
    with pytest.raises(BaselineDamaged):
        decode_series(zstandard.compress(b"{" + b" " * (1 << 27)))


def test_a_histogram_outside_the_window_is_refused():
    one = series(1, num=50)
    lines = one.latencies["ttft"]
    wrong = replace(lines, interval=lines.interval + 1)

    with pytest.raises(BaselineDamaged):
        decode_series(encode_series(replace(one, latencies={"ttft": wrong})))
