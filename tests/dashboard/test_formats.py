"""Numbers as words: units by size, no false precision, and never a missing value as zero."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (float("nan"), "—"),
        (0, "0 s"),
        (0.00042, "420 µs"),
        (0.0042, "4.2 ms"),
        (0.042, "42 ms"),
        (4.2, "4.20 s"),
        (42, "42.0 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_a_duration_is_written_in_the_unit_that_fits(value, text):
    assert formats.seconds(value) == text


@given(st.floats(min_value=0, max_value=1e8))
def test_no_duration_is_written_with_a_number_of_four_digits_or_more(value):
    number = formats.seconds(value).split()[0]

    assert float(number) < 1160 or "d" in formats.seconds(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (0, "0 %"),
        (1, "100 %"),
        (0.5, "50 %"),
        (0.121, "12.1 %"),
        (0.0001, "< 0.1 %"),
        (0.9996, "99.9 %"),
        (0.999_999_9, "> 99.9 %"),
    ],
)
def test_a_part_is_never_rounded_to_all_or_nothing(value, text):
    assert formats.ratio(value) == text


def test_counts_are_grouped_and_sizes_are_binary():
    assert formats.count(16_384) == "16\u202f384"
    assert formats.num_bytes(46_080) == "45 KiB"
    assert formats.num_bytes(None) == "—"


def test_a_small_cost_does_not_vanish():
    assert formats.money(0.000519, "USD") == "0.000519 USD"
    assert formats.money(2.5, "EUR") == "2.50 EUR"


def test_recorded_markup_is_escaped_for_html_and_for_markdown():
    assert formats.plain("<b>&") == "&lt;b&gt;&amp;"
    assert formats.unmarked(":red[x] *y*") == "\\:red\\[x\\] \\*y\\*"
