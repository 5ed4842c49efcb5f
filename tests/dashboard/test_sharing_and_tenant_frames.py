"""Figures of sharing and tenants: fresh and resumed apart, missing is not zero, many fold."""

from dataclasses import replace

import numpy as np

from agent.reads.models import LabelledSeries, Series
from dashboard.frames.requests import grouped, table_of
from dashboard.frames.sharing import SHARING_METRICS, headline, sharing_of, sharing_tiles
from dashboard.frames.tenants import OTHERS, ceiling, largest, tenants_table
from tests.dashboard.factories_rows import engine_row, request_row
from tests.dashboard.fake_reads import FakeReads

NOW = 1_700_000_000 * 10**9
ENGINE = replace(engine_row(NOW), block_size=16, fingerprint={"bytes_per_token": 1024})


def series(**values: list[float]) -> Series:
    """Return seconds; what is not named is 0 in each."""
    size = len(next(iter(values.values())))
    t_ns = np.arange(size, dtype=np.int64) * 10**9
    columns = {name: np.array(values.get(name, [0.0] * size)) for name in SHARING_METRICS}
    return Series(t_ns, columns, 1)


def tiles(engine, found: Series) -> dict[str, tuple[str | None, str]]:
    return {tile.name: (tile.value, tile.note) for tile in sharing_tiles(sharing_of(engine, found))}


def test_hits_of_fresh_prompts_and_of_resumed_ones_are_never_blended():
    found = series(
        prefix_hit_tokens=[0, 0],
        prefix_queried_tokens=[10_240, 0],
        resume_hit_tokens=[3_000, 0],
        tokens_lost=[3_072, 0],
    )

    shown = tiles(ENGINE, found)

    assert shown["Fresh hit rate"] == ("0 %", "0 of 10\u202f240 tokens not computed")
    assert shown["Found again on resume"] == (
        "3\u202f000 tokens",
        "3\u202f072 lost by preemptions",
    )


def test_what_is_not_stored_is_the_distance_of_references_and_blocks_in_bytes():
    found = series(logical_blocks=[12, 12, 6], active_blocks=[3, 6, 6], copied=[0, 3, 0])

    shown = tiles(ENGINE, found)

    assert shown["Not stored"][0] == "80 KiB"  # 5 blocks of 16 KiB on average
    assert "at most 144 KiB" in shown["Not stored"][1]
    assert shown["Copies on write"] == ("3 blocks", "48 KiB \u00b7 0 forks")


def test_without_bytes_per_token_blocks_are_told():
    found = series(logical_blocks=[12.0], active_blocks=[3.0])

    shown = tiles(replace(ENGINE, fingerprint={}), found)

    assert shown["Not stored"][0] == "9 blocks"
    assert "bytes per token not stated" in shown["Copies on write"][1]


def test_nobody_looked_up_is_no_rate_at_all():
    assert tiles(ENGINE, series(copied=[0.0]))["Fresh hit rate"][0] is None


def test_what_nobody_measured_is_not_called_nothing_shared():
    hole = series(copied=[np.nan], logical_blocks=[np.nan], active_blocks=[np.nan])

    assert headline(sharing_of(ENGINE, hole)).headline == "Nothing measured in this window"


def test_kept_active_is_told_as_a_share_of_all_block_seconds():
    found = series(outlived_block_ns=[2e9, 1e9], active_block_ns=[30e9, 30e9])

    assert tiles(ENGINE, found)["Kept active by sharing"][0] == "3"
    assert "5 % of all" in tiles(ENGINE, found)["Kept active by sharing"][1]


def test_tenants_beyond_the_largest_are_drawn_as_others():
    t_ns = np.arange(3, dtype=np.int64)
    values = {f"t{n:02}": np.full(3, float(n)) for n in range(1, 21)}

    curves = largest(LabelledSeries(t_ns, values, 10))

    assert list(curves.values)[:2] == ["t20", "t19"]
    assert len(curves.values) == 9
    assert curves.values[OTHERS].tolist() == [78.0] * 3
    assert sum(curve[0] for curve in curves.values.values()) == 210


def test_a_column_that_says_nothing_of_anybody_is_left_out_and_a_ceiling_is_shown_if_stated():
    rows = FakeReads().tenants(1, 0, 1)[:2]
    limited = replace(ENGINE, fingerprint={"tenant_ceilings": "chat=40, *=100, x"})

    assert "Quota wait" not in tenants_table(ENGINE, rows)
    assert "Ceiling" not in tenants_table(ENGINE, rows)
    assert tenants_table(limited, rows)["Ceiling"] == [100, 40]
    assert ceiling(ENGINE, "chat") is None


def test_a_sample_that_forked_has_no_first_token_of_its_own():
    first = replace(request_row(5, NOW), parent=0)
    sample = replace(first, owner=6, parent=5, arrived_at_ns=first.first_token_at_ns)

    assert table_of([first, sample])["TTFT"] == [1.0, None]
    assert table_of([first, sample])["Sample of"] == [None, 5]


def test_samples_stand_below_their_request():
    def row(owner: int, parent: int = 0):
        return replace(request_row(owner, NOW), parent=parent)

    rows = [row(9, parent=4), row(8), row(7, parent=4), row(4), row(3)]

    assert [each.owner for each in grouped(rows)] == [4, 7, 9, 8, 3]
