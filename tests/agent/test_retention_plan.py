"""What goes first when a store outgrows its budget."""

from agent.byte_size import bytes_text, parse_bytes
from agent.store.retention import SHARES, Held, Pin, finer_than, plan

MB = 1_000_000


def test_a_store_within_its_budget_gives_nothing_up() -> None:
    assert plan({Held.DETAIL: 90 * MB}, used=100 * MB, budget=100 * MB) == {}


def test_detail_above_its_share_goes_before_any_rollup() -> None:
    weights = {Held.DETAIL: 90 * MB, Held.SECONDS: 30 * MB, Held.HOURS: MB}

    given = plan(weights, used=121 * MB, budget=100 * MB)

    assert given == {Held.DETAIL: 26 * MB}  # and room for a while


def test_rollups_of_years_do_not_push_out_the_detail_of_the_last_hour() -> None:
    weights = {Held.DETAIL: 10 * MB, Held.SECONDS: 100 * MB}

    given = plan(weights, used=110 * MB, budget=100 * MB)

    assert given == {Held.SECONDS: 15 * MB}


def test_where_all_are_within_their_shares_detail_still_pays() -> None:
    weights = {Held.DETAIL: 40 * MB}

    assert plan(weights, used=120 * MB, budget=100 * MB) == {Held.DETAIL: 25 * MB}


def test_shares_are_those_of_one_budget_and_the_order_ends_with_hours() -> None:
    assert abs(sum(SHARES.values()) - 1) < 1e-9
    assert finer_than(Held.SECONDS) == [Held.DETAIL, Held.MAPS, Held.REQUESTS]
    assert list(Held)[-1] is Held.HOURS


def test_a_pin_covers_what_touches_it_in_its_run_only() -> None:
    pin = Pin(1, 100, 200)

    assert pin.covers(1, 200, 300)
    assert pin.covers(1, 50, 100)
    assert not pin.covers(1, 201, 300)
    assert not pin.covers(2, 100, 200)


def test_sizes_are_read_as_people_write_them() -> None:
    assert parse_bytes("8GiB") == 8 << 30
    assert parse_bytes(" 1.5 mb ") == 1_500_000
    assert parse_bytes("1048576") == 1 << 20
    assert parse_bytes("eight") is None
    assert parse_bytes("8 QiB") is None
    assert bytes_text(8 << 30) == "8.0 GiB"
