"""What one token takes in the cache, by shape and format, and in the tensors really allocated."""

import pytest

pytest.importorskip("torch", reason="no torch: make setup installs it")

from engine.model.kv_formats import KV_FORMATS
from engine.model.kv_tensors import KvShape, KvTensors
from engine.model.mla_cache import LatentCache, LatentShape


def test_a_latent_cache_of_61_layers_takes_70272_bytes_a_token():
    """Case HO09 (1): neither keys and values apart, nor full heads."""
    shape = LatentShape(num_layers=61, num_blocks=8, block_size=16, latent_rank=512, rope_dim=64)

    assert shape.width == 576
    assert shape.bytes_per_token(KV_FORMATS["bf16"]) == 70_272


def test_grouped_heads_of_128_take_262144_bytes_a_token_whatever_the_hidden_size():
    """Case HO09 (2): 64 query heads over a hidden size of 5,120 do not decide it."""
    shape = KvShape(num_layers=64, num_blocks=8, block_size=16, num_kv_heads=8, head_dim=128)

    assert shape.bytes_per_token(KV_FORMATS["bf16"]) == 262_144


@pytest.mark.parametrize(
    ("kv_format", "num_bytes"),
    [("fp32", 46_080), ("fp16", 23_040), ("bf16", 23_040), ("int8", 12_240), ("fp8", 11_520)],
)
def test_each_format_of_smollm2_has_its_bytes_and_allocates_them(kv_format, num_bytes):
    shape = KvShape(num_layers=30, num_blocks=8, block_size=16, num_kv_heads=3, head_dim=64)

    cache = KvTensors(shape, kv_format=KV_FORMATS[kv_format])

    assert shape.bytes_per_token(KV_FORMATS[kv_format]) == num_bytes
    assert cache.num_bytes == 8 * 16 * num_bytes


@pytest.mark.parametrize(
    ("kv_format", "num_bytes"), [("fp32", 4 * 96), ("bf16", 2 * 96), ("int8", 96 + 2 * 4)]
)
def test_a_latent_cache_allocates_its_bytes(kv_format, num_bytes):
    shape = LatentShape(num_layers=2, num_blocks=8, block_size=16, latent_rank=32, rope_dim=16)

    cache = LatentCache(shape, kv_format=KV_FORMATS[kv_format])

    assert shape.bytes_per_token(KV_FORMATS[kv_format]) == num_bytes
    assert cache.num_bytes == 8 * 16 * num_bytes
