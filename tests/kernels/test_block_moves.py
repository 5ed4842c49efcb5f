"""Block copy and swap, in the interpreter: every cache, every bit, and nothing beside."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import block_copy, reference_blocks, swap
from kernels.cache_rows import cache_rows
from kernels.errors import OverlapError, ShapeError

NUM_BLOCKS = 9


def layers_of(dtype, *, block_size=4, num_kv_heads=3, head_dim=8, num_layers=2, seed=0):
    """Two layers' keys and values of random bits, and the scales of an int8 cache."""
    generator = torch.Generator().manual_seed(seed)
    shape = (NUM_BLOCKS, block_size, num_kv_heads, head_dim * dtype.itemsize)
    caches = [
        torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(dtype)
        for _ in range(2 * num_layers)
    ]
    if dtype == torch.int8:
        caches += [torch.randn(shape[:3], generator=generator) for _ in range(2 * num_layers)]
    return caches


def bits(caches):
    return [cache.clone().view(torch.uint8) for cache in caches]


def same(one, other):
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.int8])
SIZES = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([1, 4, 16]),
        "num_kv_heads": st.integers(1, 3),
        "head_dim": st.sampled_from([3, 8, 64]),
    }
)


@settings(max_examples=25, deadline=None)
@given(
    dtype=DTYPES,
    sizes=SIZES,
    sources=st.lists(st.integers(0, 3), max_size=4),
    targets=st.permutations(range(4, NUM_BLOCKS)),
    seed=st.integers(0, 99),
)
def test_copies_of_any_batch_are_those_of_the_reference(dtype, sizes, sources, targets, seed):
    got, expected = (layers_of(dtype, seed=seed, **sizes) for _ in range(2))
    pairs = list(zip(sources, targets, strict=False))

    block_copy.copy_blocks(cache_rows(got), pairs)

    reference_blocks.copy_blocks(expected, pairs)
    assert same(bits(got), bits(expected))


@settings(max_examples=25, deadline=None)
@given(
    dtype=DTYPES,
    sizes=SIZES,
    block_ids=st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True, max_size=5),
    back_to=st.permutations(range(NUM_BLOCKS)),
)
def test_blocks_swapped_out_come_back_bit_for_bit_wherever_they_land(
    dtype, sizes, block_ids, back_to
):
    caches = layers_of(dtype, **sizes)
    before = bits(caches)
    groups = cache_rows(caches)
    staging = swap.staging_for(groups, len(block_ids))
    landed = back_to[: len(block_ids)]

    swap.gather_blocks(groups, block_ids, staging)
    for cache in caches:
        cache.view(torch.uint8).zero_()
    swap.scatter_blocks(groups, landed, staging)

    for old, new in zip(before, bits(caches), strict=True):
        assert torch.equal(new[landed], old[block_ids])
        untouched = [block for block in range(NUM_BLOCKS) if block not in landed]
        assert new[untouched].sum() == 0


def test_the_staging_buffer_holds_block_after_block_with_all_its_caches():
    caches = layers_of(torch.float32)
    groups = cache_rows(caches)
    staging = swap.staging_for(groups, 2)

    swap.gather_blocks(groups, [7, 2], staging)

    assert torch.equal(staging[0].view(torch.uint8), reference_blocks.gather_blocks(caches, [7, 2]))


def test_the_reference_scatters_what_it_gathered():
    caches = layers_of(torch.int8)
    before = bits(caches)
    gathered = reference_blocks.gather_blocks(caches, [1, 5])

    reference_blocks.scatter_blocks(caches, gathered, [6, 0])

    assert torch.equal(bits(caches)[0][[6, 0]], before[0][[1, 5]])
    assert torch.equal(bits(caches)[-1][[6, 0]], before[-1][[1, 5]])


def test_all_is_read_before_anything_is_written_in_the_reference():
    caches = [torch.arange(4.0).view(4, 1, 1, 1).repeat(1, 2, 3, 8)]

    reference_blocks.copy_blocks(caches, [(0, 1), (1, 3)])

    assert caches[0][:, 0, 0, 0].tolist() == [0.0, 0.0, 2.0, 1.0]


def test_caches_with_blocks_of_one_size_share_a_launch():
    groups = cache_rows(layers_of(torch.int8))

    assert [(len(rows.caches), rows.bytes_of_all) for rows in groups] == [(4, 384), (4, 192)]


@pytest.mark.parametrize("pairs", [[(0, 4), (1, 4)], [(0, 4), (4, 5)], [(4, 5), (0, 4)]])
def test_a_batch_whose_order_would_matter_is_refused(pairs):
    caches = layers_of(torch.float32)
    before = bits(caches)

    with pytest.raises(OverlapError, match="block 4 is a target"):
        block_copy.copy_blocks(cache_rows(caches), pairs)

    assert same(bits(caches), before)


def test_blocks_and_buffers_that_do_not_fit_are_refused():
    caches = layers_of(torch.float32)
    groups = cache_rows(caches)
    staging = swap.staging_for(groups, 2)

    with pytest.raises(ShapeError, match=r"block 9 is not one of 0\.\.8"):
        block_copy.copy_blocks(groups, [(0, 9)])
    with pytest.raises(ShapeError, match="block -1"):
        swap.gather_blocks(groups, [-1, 2], staging)
    with pytest.raises(ShapeError, match="staging is"):
        swap.gather_blocks(groups, [1], staging)
    with pytest.raises(ShapeError, match="named twice"):
        swap.scatter_blocks(groups, [1, 1], staging)
    with pytest.raises(ShapeError, match=r"torch\.int32"):
        swap.gather_blocks(groups, [1, 2], [staging[0].to(torch.int32)])
    with pytest.raises(ShapeError, match="no caches"):
        cache_rows([])
    with pytest.raises(ShapeError, match="contiguous"):
        cache_rows([caches[0].transpose(1, 2)])
    with pytest.raises(ShapeError, match="another 9"):
        cache_rows([caches[0], caches[1][:3]])
