"""The Triton decode attention, in the interpreter, against its reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import decode, reference
from kernels.errors import ShapeError
from kernels.tiles import DecodeTiles
from tests.kernels.factories_paged import (
    CACHE_TYPES,
    TOLERANCE,
    exact,
    paged_case,
    shapes,
    worst_difference,
)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_nine_query_heads_over_three_key_heads_match_the_reference(block_size, dtype):
    case = paged_case(context_lens=[40, 3], block_size=block_size, dtype=dtype, seed=block_size)

    out = decode.paged_decode(**case.arguments())

    assert out.dtype == dtype
    assert worst_difference(out, exact(case)) < TOLERANCE[dtype]


@pytest.mark.parametrize("cache_dtype", CACHE_TYPES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_kind_of_cache_is_read_as_what_it_stands_for(cache_dtype, dtype):
    case = paged_case(context_lens=[19], dtype=dtype, cache_dtype=cache_dtype)

    out = decode.paged_decode(**case.arguments())

    assert worst_difference(out, exact(case)) < TOLERANCE[dtype]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
def test_the_tail_of_a_context_is_masked_exactly(length):
    case = paged_case(context_lens=[length], num_heads=3, num_kv_heads=1, head_dim=16)

    out = decode.paged_decode(**case.arguments())

    assert worst_difference(out, exact(case)) < 1e-5


@pytest.mark.parametrize("window", [1, 15, 16, 17, 40, 41, 1000])
def test_a_window_shows_the_last_tokens_and_no_more(window):
    case = paged_case(context_lens=[40, 3], num_heads=3, num_kv_heads=1, head_dim=16)

    out = decode.paged_decode(window=window, **case.arguments())

    assert worst_difference(out, exact(case, window=window)) < 1e-5
    if window < 40:
        assert worst_difference(out[:1], exact(case)[:1]) > 1e-2


def test_blocks_given_back_behind_the_window_are_never_read():
    case = paged_case(context_lens=[60], num_heads=3, num_kv_heads=1, head_dim=16)
    expected = exact(case, window=10)
    case.block_tables[0, :3] = -1

    out = decode.paged_decode(window=10, **case.arguments())

    assert worst_difference(out, expected) < 1e-5


def test_an_empty_context_gives_zeros_and_leaves_its_neighbour_alone():
    case = paged_case(context_lens=[0, 5], num_heads=3, num_kv_heads=1, head_dim=16)

    out = decode.paged_decode(**case.arguments())

    assert torch.equal(out[0], torch.zeros(3, 16))
    assert worst_difference(out, exact(case)) < 1e-5


def test_a_given_scale_is_used():
    case = paged_case(context_lens=[9], num_heads=3, num_kv_heads=1, head_dim=16)

    sharp = decode.paged_decode(scale=2.0, **case.arguments())

    expected = reference.paged_decode(scale=2.0, **case.arguments())
    assert worst_difference(sharp, expected) < 1e-5
    assert worst_difference(sharp, exact(case)) > 1e-2


def test_a_query_cut_out_of_a_wider_projection_needs_no_copy():
    case = paged_case(context_lens=[9, 4])
    projected = torch.cat([case.query, torch.zeros(2, 6, 64)], dim=1)

    out = decode.paged_decode(**(case.arguments() | {"query": projected[:, :9]}))

    assert worst_difference(out, exact(case)) < 1e-5


def test_a_block_beyond_two_gi_elements_is_reached():
    # As in the store's test: block 2 lies 2^31 elements in, and its stride fits 32 bits.
    far = 2 << 30
    memory = torch.empty(far + 64, dtype=torch.float16)
    cache = memory.as_strided((3, 1, 1, 16), (far // 2, 16, 16, 1))
    memory[far : far + 16] = 0.5

    out = decode.paged_decode(
        query=torch.ones(1, 1, 16, dtype=torch.float16),
        key_cache=cache,
        value_cache=cache,
        block_tables=torch.tensor([[2]], dtype=torch.int32),
        context_lens=torch.tensor([1], dtype=torch.int32),
    )

    assert out.eq(0.5).all()


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes(),
    context_lens=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    window=st.none() | st.integers(1, 80),
    tokens=st.sampled_from([16, 32, 64]),
)
def test_any_shape_type_context_and_window_matches_the_reference(
    shape, context_lens, window, tokens
):
    case = paged_case(context_lens=context_lens, **shape)

    out = decode.paged_decode(window=window, tiles=DecodeTiles(tokens), **case.arguments())

    assert worst_difference(out, exact(case, window=window)) < TOLERANCE[shape["dtype"]]


def test_shapes_that_do_not_fit_are_refused_by_name():
    case = paged_case(context_lens=[5, 6])
    codes = case.key_cache.to(torch.int8)
    ones = torch.ones(codes.shape[:3])

    for change, message in [
        ({"query": torch.ones(2, 8, 64)}, "a multiple of 3"),
        ({"query": case.query.to(torch.int8)}, "query is torch.int8"),
        ({"block_tables": torch.zeros(3, 1, dtype=torch.int32)}, "block_tables"),
        ({"context_lens": torch.tensor([5.0, 6.0])}, "whole numbers"),
        ({"value_cache": case.value_cache[:-1]}, "value_cache"),
        ({"value_cache": case.value_cache.half()}, "float16"),
        ({"key_cache": case.key_cache[0], "value_cache": case.value_cache[0]}, "3 dimensions"),
        ({"key_cache": case.key_cache.double(), "value_cache": case.value_cache.double()}, "fp8"),
        ({"key_cache": codes, "value_cache": codes}, "key_scales is absent"),
        ({"key_scales": ones}, "key_scales is given"),
        (
            {"key_cache": codes, "value_cache": codes, "key_scales": ones[:1]},
            "key_scales is \\[1",
        ),
        ({"window": 0}, "window is 0"),
    ]:
        with pytest.raises(ShapeError, match=message):
            decode.paged_decode(**(case.arguments() | change))
