"""The torch references against attention written without pages."""

import pytest
import torch
from torch.nn import functional

from kernels import reference
from kernels.errors import ShapeError
from tests.kernels.factories_paged import paged_case, worst_difference


def contiguous_attention(query, keys, values, num_before):
    """SDPA over keys and values that lie in one piece."""
    hidden = torch.arange(len(keys)) > (num_before + torch.arange(len(query)))[:, None]
    return functional.scaled_dot_product_attention(
        query.double().transpose(0, 1),
        keys.double().transpose(0, 1),
        values.double().transpose(0, 1),
        attn_mask=~hidden,
        enable_gqa=True,
    ).transpose(0, 1)


def gathered(case, row, length):
    """A sequence's keys and values in one piece."""
    return (
        reference.gather_context(case.key_cache, case.key_scales, case.block_tables[row], length),
        reference.gather_context(
            case.value_cache, case.value_scales, case.block_tables[row], length
        ),
    )


@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_decode_attends_to_the_context_wherever_its_blocks_lie(block_size):
    case = paged_case(context_lens=[1, 31, 32, 33], block_size=block_size)

    out = reference.paged_decode(**case.arguments())

    for row, length in enumerate([1, 31, 32, 33]):
        keys, values = gathered(case, row, length)
        expected = contiguous_attention(case.query[row : row + 1], keys, values, length - 1)
        assert worst_difference(out[row : row + 1], expected) < 1e-5


def test_prefill_chunks_see_what_came_before_and_nothing_after():
    case = paged_case(context_lens=[20, 7], num_queries=5 + 7)

    out = reference.paged_prefill(query_starts=torch.tensor([0, 5, 12]), **case.arguments())

    for row, (chunk, length) in enumerate([(slice(0, 5), 20), (slice(5, 12), 7)]):
        keys, values = gathered(case, row, length)
        num_before = length - (chunk.stop - chunk.start)
        expected = contiguous_attention(case.query[chunk], keys, values, num_before)
        assert worst_difference(out[chunk], expected) < 1e-5


def test_a_prefill_of_one_token_each_is_a_decode():
    case = paged_case(context_lens=[3, 17])

    prefilled = reference.paged_prefill(query_starts=torch.tensor([0, 1, 2]), **case.arguments())

    assert torch.equal(prefilled, reference.paged_decode(**case.arguments()))


@pytest.mark.parametrize("window", [1, 5, 16, 40])
def test_a_window_is_the_attention_to_the_last_tokens_alone(window):
    case = paged_case(context_lens=[33])

    out = reference.paged_decode(window=window, **case.arguments())

    keys, values = (one[-window:] for one in gathered(case, 0, 33))
    expected = contiguous_attention(case.query, keys, values, len(keys) - 1)
    assert worst_difference(out, expected) < 1e-5


def test_an_int8_cache_stands_for_code_times_scale():
    case = paged_case(context_lens=[20], cache_dtype=torch.int8)
    full = paged_case(context_lens=[20])

    keys, values = gathered(case, 0, 20)

    expected_keys, expected_values = gathered(full, 0, 20)
    half_a_step = expected_keys.abs().amax(-1, keepdim=True) / 127 / 2
    assert ((keys - expected_keys).abs() <= half_a_step * 1.001).all()
    assert worst_difference(values, expected_values) < 0.02
    assert worst_difference(values, expected_values) > 0


def test_an_empty_context_gives_zeros():
    case = paged_case(context_lens=[0, 5])

    out = reference.paged_decode(**case.arguments())

    assert torch.equal(out[0], torch.zeros(9, 64))
    assert out[1].abs().sum() > 0


def test_chunks_that_do_not_fill_the_query_are_refused():
    case = paged_case(context_lens=[20], num_queries=6)

    with pytest.raises(ShapeError, match="from 0 to 6"):
        reference.paged_prefill(query_starts=torch.tensor([0, 5]), **case.arguments())


def test_a_context_longer_than_its_table_is_refused():
    case = paged_case(context_lens=[20])
    arguments = case.arguments() | {"context_lens": torch.tensor([33])}

    with pytest.raises(ShapeError, match="needs 3 blocks, not 2"):
        reference.paged_decode(**arguments)
