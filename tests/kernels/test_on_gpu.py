"""Every kernel on a GPU against its reference: the compiler and the hardware, not the interpreter.

`scripts/gpu_check.sh` runs these; by hand: TRITON_INTERPRET=0 pytest -m gpu.
"""

import os

import pytest
import torch

from kernels import (
    block_copy,
    decode,
    prefill,
    reference,
    reference_blocks,
    reference_store,
    split_decode,
    store,
    swap,
)
from kernels.cache_rows import cache_rows
from kernels.shapes import FP8, FP8_CAPABILITY
from tests.kernels.factories_paged import (
    CACHE_TYPES,
    empty_caches,
    exact,
    paged_case,
    worst_difference,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1",
        reason="Triton interprets: set TRITON_INTERPRET=0 (scripts/gpu_check.sh does)",
    ),
]

# The weights of a softmax are rounded to the query's type before they meet the values.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# fp32 is compiled without tensor cores, which takes long: one cache type of its own is enough.
TYPES = [
    (torch.float32, None),
    *(
        (dtype, stored)
        for dtype in (torch.float16, torch.bfloat16)
        for stored in (None, torch.int8, FP8)
    ),
]
LLAMA = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128}


def skip_where_fp8_is_missing(dtype):
    if dtype == FP8 and torch.cuda.get_device_capability() < FP8_CAPABILITY:
        pytest.skip(f"fp8 needs compute capability {FP8_CAPABILITY}")


@pytest.mark.parametrize("cache_dtype", CACHE_TYPES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_tokens_are_stored_bit_for_bit(dtype, cache_dtype):
    skip_where_fp8_is_missing(cache_dtype)
    generator = torch.Generator().manual_seed(1)
    key, value = (torch.randn(2, 300, 8, 128, generator=generator) * 40).to(dtype)
    slots = torch.randperm(40 * 16, generator=generator)[:300]
    slots[7] = -1
    expected = empty_caches(40, 16, 8, 128, dtype=cache_dtype)
    got = {name: one if one is None else one.cuda() for name, one in expected.items()}

    store.store_kv(key=key.cuda(), value=value.cuda(), slots=slots.cuda(), **got)

    reference_store.store_kv(key=key, value=value, slots=slots, **expected)
    for name, tensor in expected.items():
        if tensor is not None:
            assert torch.equal(got[name].cpu().view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(("dtype", "cache_dtype"), TYPES)
def test_decode_matches_the_reference_whole_and_in_parts(dtype, cache_dtype, window):
    skip_where_fp8_is_missing(cache_dtype)
    lengths = [1, 63, 64, 65, 700, 0, 1029]
    case = paged_case(context_lens=lengths, dtype=dtype, cache_dtype=cache_dtype, **LLAMA)
    on_gpu = case.on("cuda").arguments()
    expected = exact(case, window=window)

    whole = decode.paged_decode(window=window, **on_gpu)
    parts = split_decode.split_decode(window=window, num_splits=5, **on_gpu)

    assert worst_difference(whole, expected) < TOLERANCE[dtype]
    assert worst_difference(parts, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("shape", [(9, 3, 64), (6, 2, 16), (7, 1, 96), (4, 4, 80)])
@pytest.mark.parametrize("block_size", [1, 8, 16, 32, 256])
def test_other_shapes_and_block_sizes_match_the_reference(block_size, shape):
    heads, kv_heads, head_dim = shape
    case = paged_case(
        context_lens=[3, 130],
        block_size=block_size,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=torch.float16,
    )

    out = decode.paged_decode(**case.on("cuda").arguments())

    assert worst_difference(out, exact(case)) < TOLERANCE[torch.float16]


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize(("dtype", "cache_dtype"), TYPES)
def test_prefill_matches_the_reference(dtype, cache_dtype, window):
    skip_where_fp8_is_missing(cache_dtype)
    chunks = [(0, 200), (333, 77), (64, 1)]
    case = paged_case(
        context_lens=[before + num for before, num in chunks],
        num_queries=278,
        dtype=dtype,
        cache_dtype=cache_dtype,
        **LLAMA,
    )
    query_starts = torch.tensor([0, 200, 277, 278])

    out = prefill.paged_prefill(
        query_starts=query_starts.cuda(),
        max_chunk=200,
        window=window,
        **case.on("cuda").arguments(),
    )

    arguments = case.arguments() | {"query": case.query.float()}
    expected = reference.paged_prefill(query_starts=query_starts, window=window, **arguments)
    assert worst_difference(out, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_blocks_are_copied_and_swapped_bit_for_bit(dtype):
    generator = torch.Generator().manual_seed(2)
    caches = [
        torch.randint(0, 256, (50, 16, 8, 64 * dtype.itemsize), generator=generator).to(torch.uint8)
        for _ in range(6)
    ]
    caches += [torch.randn(50, 16, 8, generator=generator) for _ in range(6)]
    on_gpu = [cache.cuda() for cache in caches]
    groups = cache_rows(on_gpu)
    staging = swap.staging_for(groups, 3)

    block_copy.copy_blocks(groups, [(0, 40), (0, 41), (7, 42)])
    swap.gather_blocks(groups, [42, 3, 9], staging)
    host = [one.cpu() for one in staging]
    swap.scatter_blocks(groups, [45, 46, 47], [one.cuda() for one in host])

    reference_blocks.copy_blocks(caches, [(0, 40), (0, 41), (7, 42)])
    reference_blocks.copy_blocks(caches, [(42, 45), (3, 46), (9, 47)])
    for got, expected in zip(on_gpu, caches, strict=True):
        assert torch.equal(got.cpu(), expected)
