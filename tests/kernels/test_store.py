"""The Triton store, in the interpreter, against its reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import reference_store, store
from kernels.errors import ShapeError
from tests.kernels.factories_paged import CACHE_TYPES, TOLERANCE, empty_caches


def same_bits(got, expected):
    """Tell whether two sets of caches are the same, bit for bit."""
    return all(
        (got[name] is None and expected[name] is None)
        or torch.equal(got[name].view(torch.uint8), expected[name].view(torch.uint8))
        for name in expected
    )


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_tokens_land_in_their_slots_bit_for_bit(block_size, dtype):
    generator = torch.Generator().manual_seed(block_size)
    key, value = torch.randn(2, 5, 3, 64, generator=generator).to(dtype)
    slots = torch.tensor([0, 6 * block_size - 1, block_size, 2 * block_size - 1, 7])
    expected = empty_caches(block_size=block_size, dtype=dtype)
    reference_store.store_kv(key=key, value=value, slots=slots, **expected)

    got = empty_caches(block_size=block_size, dtype=dtype)
    store.store_kv(key=key, value=value, slots=slots, **got)

    assert same_bits(got, expected)
    assert torch.equal(got["key_cache"][5, block_size - 1], key[1])


@settings(max_examples=40, deadline=None)
@given(
    source=st.sampled_from(list(TOLERANCE)),
    stored=st.sampled_from(CACHE_TYPES),
    magnitude=st.sampled_from([1e-6, 1.0, 300.0, 1e4]),
    num_kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 24, 64]),
    slots=st.lists(st.integers(-1, 23), max_size=5, unique=True),
    seed=st.integers(0, 1 << 16),
)
def test_any_type_into_any_cache_rounds_as_the_reference_does(
    source, stored, magnitude, num_kv_heads, head_dim, slots, seed
):
    generator = torch.Generator().manual_seed(seed)
    shape = (2, len(slots), num_kv_heads, head_dim)
    key, value = (torch.randn(shape, generator=generator) * magnitude).to(source)
    got, expected = (empty_caches(3, 8, num_kv_heads, head_dim, dtype=stored) for _ in range(2))
    where = torch.tensor(slots, dtype=torch.int64)

    store.store_kv(key=key, value=value, slots=where, **got)

    reference_store.store_kv(key=key, value=value, slots=where, **expected)
    assert same_bits(got, expected)


def test_a_head_of_zeros_is_stored_as_zeros_beside_its_neighbours():
    key = torch.ones(1, 3, 64)
    key[0, 1] = 0.0
    caches = empty_caches(dtype=torch.int8)

    store.store_kv(key=key, value=-key, slots=torch.tensor([9]), **caches)

    assert caches["key_cache"][1, 1, :, 0].tolist() == [127, 0, 127]
    assert caches["value_cache"][1, 1, :, 63].tolist() == [-127, 0, -127]
    assert caches["key_scales"][1, 1].tolist() == pytest.approx([1 / 127, 0.0, 1 / 127])


def test_codes_half_way_between_two_go_to_the_even_one():
    key = torch.zeros(1, 1, 8)
    key[0, 0, :5] = torch.tensor([127.0, 0.5, 1.5, 2.5, -2.5])
    caches = empty_caches(num_kv_heads=1, head_dim=8, dtype=torch.int8)

    store.store_kv(key=key, value=key, slots=torch.tensor([0]), **caches)

    assert caches["key_cache"][0, 0, 0, :5].tolist() == [127, 0, 2, 2, -2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_what_is_too_large_for_the_cache_saturates(dtype):
    key = torch.full((1, 3, 64), 1e6)
    caches = empty_caches(dtype=dtype)

    store.store_kv(key=key, value=-key, slots=torch.tensor([0]), **caches)

    largest = torch.finfo(dtype).max
    assert caches["key_cache"][0, 0].float().eq(largest).all()
    assert caches["value_cache"][0, 0].float().eq(-largest).all()


def test_padding_tokens_change_nothing():
    key = torch.ones(3, 3, 64)
    caches = empty_caches()

    store.store_kv(key=key, value=2 * key, slots=torch.tensor([-1, 9, -1]), **caches)

    assert caches["key_cache"].sum() == 3 * 64
    assert caches["value_cache"][1, 1].eq(2).all()
    assert caches["value_cache"].sum() == 2 * 3 * 64


def test_heads_cut_out_of_a_wider_projection_need_no_copy():
    projected = torch.randn(4, 15, 64, generator=torch.Generator().manual_seed(1))
    key, value = projected[:, 9:12], projected[:, 12:]
    caches = empty_caches()

    store.store_kv(key=key, value=value, slots=torch.tensor([3, 2, 1, 0]), **caches)

    assert torch.equal(caches["key_cache"][0, :4], key.flip(0))
    assert torch.equal(caches["value_cache"][0, :4], value.flip(0))


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
    arguments = {"slots": torch.tensor([0, 1])} | empty_caches()

    with pytest.raises(ShapeError, match=r"key is \[2, 2, 64\]; expected \[2, 3, 64\]"):
        store.store_kv(key=torch.ones(2, 2, 64), value=torch.ones(2, 2, 64), **arguments)
    with pytest.raises(ShapeError, match="slots"):
        store.store_kv(key=torch.ones(3, 3, 64), value=torch.ones(3, 3, 64), **arguments)
    with pytest.raises(ShapeError, match="value is torch"):
        store.store_kv(key=torch.ones(2, 3, 64).half(), value=torch.ones(2, 3, 64), **arguments)
    with pytest.raises(ShapeError, match="int64"):
        store.store_kv(key=torch.ones(2, 3, 64).long(), value=torch.ones(2, 3, 64), **arguments)
    strided = torch.ones(2, 3, 128)[..., ::2]
    with pytest.raises(ShapeError, match="last dimension"):
        store.store_kv(key=strided, value=torch.ones(2, 3, 64), **arguments)
