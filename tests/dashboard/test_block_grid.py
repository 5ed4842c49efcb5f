"""The map's colours: each block is in exactly one class, and the legend counts them all."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.reads.models import Leak
from dashboard.frames.block_detail import block_words, choices, detail_of, leak_words, moment_words
from dashboard.frames.block_grid import LIT, ColourBy, grid_of
from kvpulse.events import UNKNOWN_OWNER, BlockState
from tests.dashboard.factories_rows import block_map_with_all_states

AT = 1_796_000_000_000_000_000


def grid(blocks, colour=ColourBy.STATE, leaked=(), lit=()):
    return grid_of(blocks, colour_by=colour, leaked=leaked, lit=lit)


def counted(view):
    return {swatch.label: swatch.num_blocks for swatch in view.legend}


@given(st.sampled_from(list(ColourBy)), st.integers(1, 700))
def test_the_legend_counts_every_block_once(colour, total):
    blocks = block_map_with_all_states(total, AT)

    view = grid(blocks, colour)

    assert sum(counted(view).values()) == total
    assert view.classes.max() < len(view.swatches)


def test_states_are_counted_as_the_store_has_them():
    blocks = block_map_with_all_states(4096, AT)
    unknown = int(((blocks.state == BlockState.ACTIVE) & (blocks.owner == -1)).sum())

    counts = counted(grid(blocks))

    assert counts["free"] == int((blocks.state == BlockState.FREE).sum())
    assert counts["cached"] == int((blocks.state == BlockState.CACHED).sum())
    assert counts["active, owner unknown"] == unknown > 0
    assert counts["active"] + unknown == int((blocks.state == BlockState.ACTIVE).sum())


def test_a_leaked_block_is_red_whatever_else_it_is():
    view = grid(block_map_with_all_states(64, AT), leaked=[3, 40])

    assert counted(view)["leaked"] == 2
    assert view.swatches[view.classes[3]].colour == "#dc2626"


def test_a_class_with_no_block_stays_in_the_legend_of_states():
    assert counted(grid(block_map_with_all_states(64, AT)))["leaked"] == 0


def test_an_owner_keeps_its_colour_as_others_come_and_go():
    many, few = block_map_with_all_states(4096, AT), block_map_with_all_states(256, AT)
    shared = set(np.unique(many.owner[many.owner > 0])) & set(np.unique(few.owner[few.owner > 0]))

    def colour_of(blocks, owner):
        view = grid(blocks, ColourBy.OWNER)
        block = int(np.flatnonzero(blocks.owner == owner)[0])
        return view.swatches[view.classes[block]].colour

    owner = max(shared)
    assert colour_of(many, owner) == colour_of(few, owner)


def test_more_owners_than_a_byte_can_name_still_draw():
    blocks = block_map_with_all_states(16_384, AT)
    assert len(np.unique(blocks.owner)) > 1000

    view = grid(blocks, ColourBy.OWNER)

    assert sum(counted(view).values()) == 16_384


@pytest.mark.parametrize(("count", "label"), [(1, "count 1"), (2, "count 2"), (4, "count 3-4")])
def test_a_reference_count_falls_into_its_step(count, label):
    blocks = block_map_with_all_states(8, AT)
    blocks.state[:] = BlockState.ACTIVE
    blocks.count[:] = count

    assert counted(grid(blocks, ColourBy.COUNT))[label] == 8


def test_filled_slots_that_nobody_knows_are_hatched():
    blocks = block_map_with_all_states(8, AT)
    blocks.state[:] = BlockState.ACTIVE
    blocks.filled[:] = -1

    view = grid(blocks, ColourBy.FILLED)

    assert counted(view) == {"no content hash yet: fill not known": 8}
    assert view.legend[0].hatched


def test_lighting_a_sequence_marks_all_its_blocks_shared_ones_too():
    blocks = block_map_with_all_states(512, AT)
    owner = int(blocks.ref_owner[-1])

    view = grid(blocks, lit=blocks.blocks_of(owner))

    assert np.flatnonzero(view.flags & LIT).tolist() == sorted(blocks.blocks_of(owner))
    assert view.num_lit == len(blocks.blocks_of(owner))


def test_sequences_to_light_are_listed_with_their_tenant_newest_first():
    labels = choices(block_map_with_all_states(512, AT))

    assert list(labels) == sorted(labels, reverse=True)
    assert all(label.startswith(f"sequence {owner} · ") for owner, label in labels.items())


def test_a_block_of_an_unknown_owner_says_so():
    blocks = block_map_with_all_states(4096, AT)
    block = int(np.flatnonzero(blocks.owner == -1)[0])

    leaked = dict(detail_of(blocks, block).facts)
    told = dict(detail_of(replace(blocks, exact=False), block).facts)

    assert leaked["Owners"] == "unknown: it ended in a gap"
    assert told["Owners"] == "unknown since a gap; known again at the next keyframe"
    assert told["Tenant"] is None


def test_a_map_older_than_asked_for_tells_its_age():
    blocks = block_map_with_all_states(64, AT)
    old = type(blocks)(**{**fields_of(blocks), "exact": False, "age_ns": 41_000_000_000})

    assert moment_words(blocks).endswith("· exact")
    assert "41.0 s older than asked for" in moment_words(old)


def test_leaks_are_named_per_owner_with_runs_drawn_together():
    leaks = [Leak(block, 9, AT, None) for block in (4, 5, 6, 9)] + [Leak(2, 7, AT, None)]

    assert leak_words(leaks) == (
        "5 blocks outlived their owner. Of sequence 7: block 2; of sequence 9: blocks 4-6, 9."
    )
    assert block_words([1]) == "block 1"


def test_a_leak_that_began_in_a_gap_says_that_its_owner_is_unknown():
    leaks = [Leak(4, UNKNOWN_OWNER, AT, None), Leak(2, 7, AT, None)]

    assert leak_words(leaks).endswith(
        "Of sequence 7: block 2; of an owner unknown, before a gap: block 4."
    )


def test_a_block_that_two_ended_sequences_held_is_one_leaked_block():
    leaks = [Leak(4, 9, AT, None), Leak(4, 12, AT, None)]

    assert leak_words(leaks).startswith("1 block outlived")


def fields_of(blocks):
    return {name: getattr(blocks, name) for name in type(blocks).__dataclass_fields__}
