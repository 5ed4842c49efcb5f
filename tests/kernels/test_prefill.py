"""The chunked prefill attention, in the interpreter, against its reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import prefill, reference
from kernels.errors import ShapeError
from kernels.tiles import PrefillTiles
from tests.kernels.factories_paged import (
    CACHE_TYPES,
    TOLERANCE,
    PagedCase,
    paged_case,
    shapes,
    worst_difference,
)


def chunks_case(chunks, **settings):
    """A case of (tokens before the chunk, tokens of the chunk) for each sequence."""
    case = paged_case(
        context_lens=[before + num for before, num in chunks],
        num_queries=sum(num for _, num in chunks),
        **settings,
    )
    return case, torch.tensor([0, *(num for _, num in chunks)]).cumsum(0)


def exact_chunks(case: PagedCase, query_starts, **settings):
    arguments = case.arguments() | {"query": case.query.float()}
    return reference.paged_prefill(query_starts=query_starts, **arguments, **settings)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_chunks_see_what_came_before_and_nothing_after(dtype):
    case, query_starts = chunks_case([(0, 21), (15, 6), (33, 1)], dtype=dtype)

    out = prefill.paged_prefill(query_starts=query_starts, max_chunk=21, **case.arguments())

    assert out.dtype == dtype
    assert worst_difference(out, exact_chunks(case, query_starts)) < TOLERANCE[dtype]


@pytest.mark.parametrize("cache_dtype", CACHE_TYPES)
def test_every_kind_of_cache_is_read_as_what_it_stands_for(cache_dtype):
    case, query_starts = chunks_case([(10, 7)], cache_dtype=cache_dtype)

    out = prefill.paged_prefill(query_starts=query_starts, max_chunk=7, **case.arguments())

    assert worst_difference(out, exact_chunks(case, query_starts)) < 1e-5


def test_each_token_of_a_chunk_has_a_window_of_its_own():
    case, query_starts = chunks_case([(20, 12)], num_heads=2, num_kv_heads=1, head_dim=16)
    expected = exact_chunks(case, query_starts, window=5)
    # The first token stands at 20 and sees 16 and on: the block of 0..15 may be gone.
    case.block_tables[0, 0] = -1

    out = prefill.paged_prefill(
        query_starts=query_starts, max_chunk=12, window=5, **case.arguments()
    )

    assert worst_difference(out, expected) < 1e-5


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes(),
    chunks=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=3),
    window=st.none() | st.integers(1, 50),
    rows=st.sampled_from([16, 32]),
    tokens=st.sampled_from([16, 32]),
)
def test_any_shape_type_chunk_and_window_matches_the_reference(shape, chunks, window, rows, tokens):
    case, query_starts = chunks_case(chunks, **shape)

    out = prefill.paged_prefill(
        query_starts=query_starts,
        max_chunk=max(num for _, num in chunks),
        window=window,
        tiles=PrefillTiles(rows, tokens),
        **case.arguments(),
    )

    expected = exact_chunks(case, query_starts, window=window)
    assert worst_difference(out, expected) < TOLERANCE[shape["dtype"]]


def test_more_shared_heads_than_a_small_tile_has_rows_get_a_larger_one():
    case, query_starts = chunks_case([(3, 2)], num_heads=20, num_kv_heads=1, head_dim=16)

    out = prefill.paged_prefill(query_starts=query_starts, max_chunk=2, **case.arguments())

    assert worst_difference(out, exact_chunks(case, query_starts)) < 1e-5


def test_a_window_of_no_token_and_starts_of_the_wrong_length_are_refused():
    case, query_starts = chunks_case([(3, 2)])

    with pytest.raises(ShapeError, match="window is 0"):
        prefill.paged_prefill(query_starts=query_starts, max_chunk=2, window=0, **case.arguments())
    with pytest.raises(ShapeError, match=r"query_starts is \[1\]; expected \[2\]"):
        prefill.paged_prefill(query_starts=query_starts[:1], max_chunk=2, **case.arguments())
