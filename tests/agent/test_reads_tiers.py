"""Which rollup tiers answer a window: few points, nothing missing, nothing twice."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent.reads.tiers import NS, Window, cover
from agent.rollups.scalars import TIERS

HOUR = 3600 * NS
DAY = 24 * HOUR
NOON = 1_790_000_000 // 3600 * HOUR


def test_a_day_is_read_by_the_minute_and_a_month_by_the_hour() -> None:
    assert Window(NOON, NOON + DAY).tier().tier_seconds == 60
    assert Window(NOON, NOON + 30 * DAY).tier().tier_seconds == 3600


def test_a_quarter_of_an_hour_is_read_by_the_second() -> None:
    assert Window(NOON, NOON + HOUR // 4).tier().tier_seconds == 1


def test_fewer_points_asked_for_means_a_coarser_tier() -> None:
    assert Window(NOON, NOON + HOUR, 100).tier().tier_seconds == 60


def test_years_fall_back_to_the_coarsest_tier() -> None:
    assert Window(NOON, NOON + 3650 * DAY).tier().tier_seconds == 3600


def test_the_interval_that_holds_the_start_is_included() -> None:
    stretch = Window(NOON + 90 * NS, NOON + DAY).tier()

    assert stretch.start_ns == NOON + 60 * NS


def test_a_window_outside_the_run_is_empty_and_never_negative() -> None:
    window = Window(100, 200).within(300, 400)

    assert window.start_ns == window.end_ns == 300


@given(st.integers(0, 40 * DAY), st.integers(0, 40 * DAY))
def test_a_cover_is_the_window_cut_without_gap_or_overlap(start: int, length: int) -> None:
    stretches = cover(start, start + length)

    low, high = start // NS * NS, -(-(start + length) // NS) * NS
    edges = [(stretch.start_ns, stretch.end_ns) for stretch in stretches]
    assert all(left[1] == right[0] for left, right in pairwise(edges))
    assert (edges[0][0], edges[-1][1]) == (low, high) if low < high else not edges
    for tier, first, end in stretches:
        assert tier in TIERS
        assert first % (tier * NS) == end % (tier * NS) == 0


@given(st.integers(0, DAY), st.integers(1, 30 * DAY))
def test_a_cover_of_a_month_has_few_intervals(start: int, length: int) -> None:
    stretches = cover(start, start + length)

    num = sum((end - first) // (tier * NS) for tier, first, end in stretches)
    assert num <= length // HOUR + 2 * (59 + 5 + 10) + 2
