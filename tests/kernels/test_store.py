"""The Triton store, in the interpreter, against its reference."""

import pytest
import torch

from kernels import reference, store
from kernels.errors import ShapeError


def empty_caches(num_blocks=6, block_size=8, num_kv_heads=3, head_dim=64, dtype=torch.float32):
    shape = (num_blocks, block_size, num_kv_heads, head_dim)
    return torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tokens_land_in_their_slots_bit_for_bit(block_size, dtype):
    generator = torch.Generator().manual_seed(block_size)
    key = torch.randn(5, 3, 64, generator=generator).to(dtype)
    value = torch.randn(5, 3, 64, generator=generator).to(dtype)
    slots = torch.tensor([0, 6 * block_size - 1, block_size, 2 * block_size - 1, 7])
    expected = empty_caches(block_size=block_size, dtype=dtype)
    reference.store_kv(
        key=key, value=value, key_cache=expected[0], value_cache=expected[1], slots=slots
    )

    got = empty_caches(block_size=block_size, dtype=dtype)
    store.store_kv(key=key, value=value, key_cache=got[0], value_cache=got[1], slots=slots)

    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert torch.equal(got[0][5, block_size - 1], key[1])


def test_padding_tokens_change_nothing():
    key = torch.ones(3, 3, 64)
    key_cache, value_cache = empty_caches()

    store.store_kv(
        key=key,
        value=2 * key,
        key_cache=key_cache,
        value_cache=value_cache,
        slots=torch.tensor([-1, 9, -1]),
    )

    assert key_cache.sum() == 3 * 64
    assert value_cache[1, 1].eq(2).all()
    assert value_cache.sum() == 2 * 3 * 64


def test_heads_cut_out_of_a_wider_projection_need_no_copy():
    projected = torch.randn(4, 15, 64, generator=torch.Generator().manual_seed(1))
    key, value = projected[:, 9:12], projected[:, 12:]
    key_cache, value_cache = empty_caches()

    store.store_kv(
        key=key,
        value=value,
        key_cache=key_cache,
        value_cache=value_cache,
        slots=torch.tensor([3, 2, 1, 0]),
    )

    assert torch.equal(key_cache[0, :4], key.flip(0))
    assert torch.equal(value_cache[0, :4], value.flip(0))


def test_a_block_beyond_two_gi_elements_is_reached():
    # Block 2 lies 2^31 elements in, its stride fits 32 bits; only pages written to take memory.
    far = 2 << 30
    memory = torch.empty(far + 64, dtype=torch.float16)
    cache = memory.as_strided((3, 1, 1, 16), (far // 2, 16, 16, 1))
    values = torch.zeros(3, 1, 1, 16, dtype=torch.float16)
    key = torch.full((1, 1, 16), 3.0, dtype=torch.float16)

    store.store_kv(
        key=key,
        value=key,
        key_cache=cache,
        value_cache=values,
        slots=torch.tensor([2], dtype=torch.int32),
    )

    assert memory[far : far + 16].eq(3.0).all()


def test_shapes_that_do_not_fit_are_refused_by_name():
    key_cache, value_cache = empty_caches()
    arguments = {"key_cache": key_cache, "value_cache": value_cache, "slots": torch.tensor([0, 1])}

    with pytest.raises(ShapeError, match=r"key is \[2, 2, 64\]; expected \[2, 3, 64\]"):
        store.store_kv(key=torch.ones(2, 2, 64), value=torch.ones(2, 2, 64), **arguments)
    with pytest.raises(ShapeError, match="slots"):
        store.store_kv(key=torch.ones(3, 3, 64), value=torch.ones(3, 3, 64), **arguments)
    with pytest.raises(ShapeError, match="float16"):
        store.store_kv(key=torch.ones(2, 3, 64).half(), value=torch.ones(2, 3, 64), **arguments)
    strided = torch.ones(2, 3, 128)[..., ::2]
    with pytest.raises(ShapeError, match="last dimension"):
        store.store_kv(key=strided, value=torch.ones(2, 3, 64), **arguments)
