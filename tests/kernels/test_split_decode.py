"""The decode attention over parts of the context, in the interpreter, against its reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import decode, split_decode
from kernels.errors import ShapeError
from kernels.tiles import DecodeTiles, choose_splits
from tests.kernels.factories_paged import TOLERANCE, exact, paged_case, shapes, worst_difference


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes(),
    context_lens=st.lists(st.integers(0, 70), min_size=1, max_size=2),
    window=st.none() | st.integers(1, 80),
    num_splits=st.integers(1, 7),
    tokens=st.sampled_from([16, 32]),
)
def test_parts_merge_to_the_whole(shape, context_lens, window, num_splits, tokens):
    case = paged_case(context_lens=context_lens, **shape)

    out = split_decode.split_decode(
        num_splits=num_splits, window=window, tiles=DecodeTiles(tokens), **case.arguments()
    )

    assert out.dtype == shape["dtype"]
    assert worst_difference(out, exact(case, window=window)) < TOLERANCE[shape["dtype"]]


def test_a_part_whose_scores_dwarf_the_others_decides_alone():
    # Weights of the other parts are exp(-1000s): they vanish, and leave no NaN behind.
    case = paged_case(context_lens=[64], num_heads=2, num_kv_heads=1, head_dim=16)
    block, offset = case.block_tables[0, 2], 5
    case.query.fill_(10.0)
    case.key_cache[block, offset] = 100.0

    out = split_decode.split_decode(num_splits=4, **case.arguments())

    assert worst_difference(out[0], case.value_cache[block, offset].expand(2, 16)) < 1e-6


def test_more_parts_than_tiles_leave_the_last_ones_empty():
    case = paged_case(context_lens=[20, 0], num_heads=3, num_kv_heads=1, head_dim=16)

    out = split_decode.split_decode(num_splits=9, **case.arguments())

    assert torch.equal(out[1], torch.zeros(3, 16))
    assert worst_difference(out, decode.paged_decode(**case.arguments())) < 1e-6


def test_shapes_that_do_not_fit_are_refused():
    case = paged_case(context_lens=[20])

    with pytest.raises(ShapeError, match="a multiple of 3"):
        split_decode.split_decode(num_splits=2, **(case.arguments() | {"query": case.query[:, :8]}))


@pytest.mark.parametrize(
    ("num_programs", "max_context", "expected"),
    [
        (64 * 8, 8192, 1),  # two programs per multiprocessor and more: the batch is enough
        (8, 65_536, 64),  # one sequence of 8 key heads: as many as are allowed
        (8, 8192, 16),  # no part shorter than 512 tokens
        (8, 400, 1),
        (100, 65_536, 6),  # four programs for each of 132 multiprocessors
    ],
)
def test_contexts_are_split_only_when_programs_are_few_and_contexts_long(
    num_programs, max_context, expected
):
    chosen = choose_splits(num_programs=num_programs, max_context=max_context, num_cores=132)

    assert chosen == expected
