"""The strip's seven tiles: values with units, and a reason where one is missing."""

from dataclasses import replace

import numpy as np
import pytest

from agent.reads.models import LatencySummary, RequestState, Series
from dashboard.config import DashboardConfig
from dashboard.frames.series import Window
from dashboard.frames.strip import (
    STRIP_METRICS,
    StripFacts,
    block_size,
    bytes_per_token,
    strip_of,
)
from tests.dashboard.factories_rows import engine_row, request_row

SECOND = 1_000_000_000
NOW = 1_796_000_000 * SECOND
FREE = DashboardConfig(store="x")
PRICED = DashboardConfig(store="x", price_per_hour=3.6)


def tiles(config=FREE, *, rows=(), ttft=None, reasons=None, **metrics):
    values = {name: np.array([np.nan]) for name in STRIP_METRICS}
    values |= {name: np.array([float(value)]) for name, value in metrics.items()}
    facts = StripFacts(
        engine=engine_row(NOW),
        window=Window(NOW - 100 * SECOND, NOW),
        series=Series(np.array([NOW - 100 * SECOND]), values, 100),
        rejected_by_reason=reasons or {},
        ttft=ttft,
        requests=rows,
    )
    return {tile.name: tile for tile in strip_of(facts, config)}


def test_the_tiles_stand_in_their_fixed_order():
    assert list(tiles()) == [
        "Bytes per token",
        "Block size",
        "Peak active blocks",
        "Maximum concurrency",
        "Rejection rate",
        "TTFT p95",
        "Cost per request",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Peak active blocks", "no pool samples in this window"),
        ("Maximum concurrency", "no steps in this window"),
        ("Rejection rate", "no request arrived in this window"),
        ("TTFT p95", "no first token in this window"),
        ("Cost per request", "no price given: start with --price-per-hour"),
    ],
)
def test_a_value_that_nobody_measured_is_an_empty_tile_with_its_reason(name, reason):
    tile = tiles()[name]

    assert (tile.value, tile.note) == (None, reason)


def test_bytes_per_token_come_with_bytes_per_block():
    tile = tiles()["Bytes per token"]

    assert (tile.value, tile.note) == ("45 KiB", "720 KiB per block · fp32")


def test_a_block_of_a_mixed_model_weighs_a_groups_share_of_a_token():
    row = engine_row(NOW)
    stated = {"kv_groups": 3, "windowed_kv_groups": 2, "most_windowed_blocks": 8}
    mixed = replace(row, fingerprint={**row.fingerprint, **stated})

    assert bytes_per_token(mixed).note == "240 KiB per block · fp32"
    assert block_size(mixed).note.endswith("blocks; a token takes one in each of 3 groups")


def test_refused_over_arrived_is_the_rejection_rate():
    tile = tiles(arrived=200, rejected=25, reasons={"queue_full": 20.0})["Rejection rate"]

    assert (tile.value, tile.note) == ("12.5 %", "25 of 200 · most: queue full")


def test_no_refusal_among_arrivals_is_a_measured_zero():
    assert tiles(arrived=200, rejected=0)["Rejection rate"].value == "0 %"


def test_maximum_concurrency_stands_beside_what_fits_at_the_p95_length():
    rows = [request_row(owner, NOW, (RequestState.FINISHED,)) for owner in range(100, 120)]

    tile = tiles(live_sequences=40, running=16, rows=rows)["Maximum concurrency"]

    # The 19th of 20 lengths: 300 + 3 x 118 + 118 = 772 tokens, 49 blocks of 16; 512 // 49 = 10.
    assert (tile.value, tile.note) == (
        "40 live",
        "16 running at most · 10 fit at p95 length, 772 tokens",
    )


def test_ttft_p95_comes_with_its_median_and_count():
    summary = LatencySummary(1840, 900.0, 0.05, 0.241, 1.82, 3.4, 5.1)

    tile = tiles(ttft=summary)["TTFT p95"]

    assert (tile.value, tile.note) == ("1.82 s", "p50 241 ms · n = 1\u202f840")


def test_a_request_pays_for_its_block_seconds_and_idle_blocks_stand_apart():
    # 100 s at 3.6 an hour cost 0.1; half the pool's block-seconds were in use, by 10 requests.
    half = 512 * 100 * SECOND // 2

    tile = tiles(PRICED, finished=10, active_block_ns=half)["Cost per request"]

    assert tile.value == "0.0050 USD"
    assert tile.note == "idle blocks cost 0.0500 USD more (50 %)"
