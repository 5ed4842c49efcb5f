"""Blocks moved by kernels end up where torch's own index operations put them, bit for bit."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.block_memory import BlockMemory, block_memory
from engine.model.kernel_block_memory import KernelBlockMemory
from engine.model.kv_formats import KV_FORMATS
from engine.model.kv_tensors import KvShape, KvTensors

NUM_BLOCKS, NUM_HOST_BLOCKS = 5, 4


def filled_tensors(seed):
    """The tensors of an int8 cache: codes, and scales of another size."""
    generator = torch.Generator().manual_seed(seed)
    kv = KvTensors(KvShape(2, NUM_BLOCKS, 4, 2, 8), kv_format=KV_FORMATS["int8"])
    tensors = [*kv.keys, *kv.values, *kv.key_scales, *kv.value_scales]
    for tensor in tensors:
        noise = torch.randn(tensor.shape, generator=generator) * 50
        tensor.copy_(noise.to(tensor.dtype))
    return tensors


def pairs_of(num_sources, num_targets):
    """Pairs with different targets, as the engine's moves have."""
    targets = st.lists(st.integers(0, num_targets - 1), unique=True, max_size=3)
    return targets.flatmap(
        lambda chosen: st.tuples(
            *(st.tuples(st.integers(0, num_sources - 1), st.just(target)) for target in chosen)
        )
    )


MOVES = st.one_of(
    st.tuples(st.just("copy"), pairs_of(NUM_BLOCKS, NUM_BLOCKS)),
    st.tuples(st.just("swap_out"), pairs_of(NUM_BLOCKS, NUM_HOST_BLOCKS)),
    st.tuples(st.just("swap_in"), pairs_of(NUM_HOST_BLOCKS, NUM_BLOCKS)),
)


@settings(max_examples=15, deadline=None)
@given(moves=st.lists(MOVES, max_size=5), seed=st.integers(0, 99))
def test_any_moves_leave_the_same_bits_as_torch_leaves(moves, seed):
    mine, theirs = filled_tensors(seed), filled_tensors(seed)
    kernels = KernelBlockMemory(mine, num_host_blocks=NUM_HOST_BLOCKS)
    plain = BlockMemory(theirs, num_host_blocks=NUM_HOST_BLOCKS)

    for kind, pairs in moves:
        getattr(kernels, kind)(list(pairs))
        getattr(plain, kind)(list(pairs))

    for got, expected in zip(mine, theirs, strict=True):
        assert torch.equal(got, expected)


def test_both_count_the_same_bytes():
    tensors = filled_tensors(0)
    kernels = KernelBlockMemory(tensors, num_host_blocks=NUM_HOST_BLOCKS)
    plain = BlockMemory(tensors, num_host_blocks=NUM_HOST_BLOCKS)

    assert kernels.num_bytes == plain.num_bytes
    assert kernels.num_host_bytes == plain.num_host_bytes


def test_without_a_gpu_torch_moves_the_blocks():
    assert isinstance(block_memory(filled_tensors(0), num_host_blocks=1), BlockMemory)
