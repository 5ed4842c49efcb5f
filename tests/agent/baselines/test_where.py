"""The difference of mean TTFT, split over waits by cause and the time after admission, exactly."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from agent.baselines.codec import decode_series, encode_series
from agent.baselines.compare import compare
from agent.baselines.document import comparison_document
from agent.baselines.first_tokens import FIRST_TOKEN_COUNTERS, FirstTokens, WaitedRequest
from agent.baselines.gather import Grid, HistogramRow, RunRows, gather
from agent.baselines.metrics import COUNTERS
from agent.baselines.text import where_lines
from agent.baselines.where import where
from agent.baselines.window_series import NS
from agent.rollups.histogram import Histogram
from tests.agent.factories_baselines import START_NS, series, side, without

MS = 1_000_000


def waited(place, *, pool=0, behind=0, scheduler=0, after=MS):
    """Return a request with its first token in the place-th interval; waits in ns."""
    first_token = START_NS + place * 10 * NS + 5 * NS
    admitted = first_token - after
    arrived = admitted - pool - behind - scheduler
    return WaitedRequest(arrived, admitted, first_token, pool + behind, behind, scheduler, 0, 0)


def window(requests, *, num=4, unsplit=()):
    """Return a window of these requests; of those in `unsplit` only the histogram knows."""
    everybody = [*requests, *unsplit]
    rows = []
    for request in everybody:
        one = Histogram()
        one.add(np.array([request.first_token - request.arrived]))
        rows.append(HistogramRow(request.first_token, "ttft", one.encode()))
    at_ns = START_NS + np.arange(num) * 10 * NS
    counters = {name: np.zeros(num) for name in COUNTERS}
    run = RunRows(at_ns, counters, rows, np.zeros((0, 2), np.int64), FirstTokens.of(requests))
    return gather(Grid(10, START_NS, num), [run]).series


def changes(found):
    return {part.name: part.change for part in found.parts}


def test_the_parts_add_up_to_the_difference_of_mean_ttft():
    calm = window([waited(0, scheduler=3 * MS, after=10 * MS), waited(1, after=11 * MS)])
    busy = window(
        [
            waited(0, pool=40 * MS, after=10 * MS),
            waited(2, behind=33 * MS + 1, scheduler=2 * MS, after=10 * MS),
            waited(3, after=10 * MS),
        ]
    )

    found = where(calm, busy)

    assert found.total.first == pytest.approx(0.012)
    assert found.first.total_ns == 24 * MS
    assert found.second.total_ns == 105 * MS + 1
    assert found.total.change == float(Fraction(105 * MS + 1, 3 * NS) - Fraction(24 * MS, 2 * NS))
    assert changes(found) == pytest.approx(
        {
            "pool": 0.040 / 3,
            "pool_behind": 0.033000001 / 3,
            "scheduler": 0.002 / 3 - 0.0015,
            "quota": 0.0,
            "transfer": 0.0,
            "prefill": 0.010 - 0.0105,
        }
    )
    assert sum(changes(found).values()) == pytest.approx(found.total.change, abs=1e-15)


def test_a_request_whose_waits_do_not_fill_its_queue_time_is_not_split():
    odd = waited(0, pool=MS)._replace(admitted=START_NS)

    assert len(FirstTokens.of([odd, waited(1)]).at_ns) == 1


def test_an_interval_with_a_request_that_cannot_be_split_is_left_out():
    whole = window([waited(place) for place in range(100)], num=100)
    partly = window(
        [waited(place) for place in range(100)], num=100, unsplit=[waited(7, pool=9 * NS)]
    )

    found = where(whole, partly)

    assert found.second.num_requests == 99
    assert found.second.num_first_tokens == 101
    assert found.total.change == 0


def test_too_few_requests_that_can_be_split_are_no_answer():
    whole = window([waited(0), waited(1)])
    partly = window([waited(0)], unsplit=[waited(1)])

    found = where(whole, partly)

    assert found.total is None
    assert found.parts == ()
    assert "second side's 2 first tokens only 1 can be split" in found.why_not


def test_intervals_that_do_not_count_are_not_split():
    both = window([waited(0, pool=MS), waited(1, pool=5 * MS)])

    found = where(both, without(both, [1]))

    assert changes(found)["pool"] == pytest.approx(-0.002)


def test_a_saved_window_keeps_the_sums_and_one_of_an_older_version_says_that_it_has_none():
    one = window([waited(0, pool=MS), waited(1)])
    saved = decode_series(encode_series(one))
    older = replace(one, counters={name: one.counters[name] for name in COUNTERS})

    assert where(saved, one).total.change == 0
    found = where(decode_series(encode_series(older)), one)
    assert found.total is None
    assert "the first side keeps no sums by request" in found.why_not
    assert where_lines(comparison_document(comparison(older, one))["where"]) == [
        f"where TTFT changed: not available; {found.why_not}"
    ]


def comparison(first, second):
    known = [decode_series(encode_series(one)) for one in (first, second)]
    return compare(*(side(one) for one in known))


def test_a_coarser_tier_splits_the_same():
    fine = window([waited(place, pool=place * MS) for place in range(12)], num=12)

    assert where(fine.coarsened(60), fine).total.change == 0


def test_the_answer_is_in_text_and_json():
    counters = dict.fromkeys(FIRST_TOKEN_COUNTERS, 0.0) | {"ttft_requests": 10.0}
    calm = series(1, **counters | {"ttft_prefill_ns": 10.0 * 100 * MS})
    busy = series(2, **counters | {"ttft_prefill_ns": 10.0 * 100 * MS, "ttft_pool_ns": 2.0 * NS})

    told = comparison_document(compare(side(calm), side(busy)))["where"]

    assert told["total"]["change"] == pytest.approx(0.2)
    assert told["first"]["total_ns"] == sum(told["first"]["parts_ns"]) == 1440 * NS
    lines = where_lines(told)
    assert lines[0].endswith("exact over 14,400 and 14,400 requests")
    assert lines[1].split() == ["wait", "for", "blocks", "0", "ms", "200", "ms", "+200", "ms"]
    assert lines[-1].split() == ["mean", "TTFT", "100", "ms", "300", "ms", "+200", "ms"]
