"""The engine on a GPU: greedy tokens do not depend on the attention backend.

`scripts/gpu_check.sh` runs these; by hand: TRITON_INTERPRET=0 pytest -m gpu.
"""

import dataclasses
import os
from importlib.util import find_spec

import pytest
import torch

from engine.model.kv_formats import KV_FORMATS
from engine.model.kv_tensors import KvShape, KvTensors
from engine.model.llama import LlamaWeights
from tests.engine.factories_model import Workload, random_model, run_engine, runner_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1",
        reason="Triton interprets: set TRITON_INTERPRET=0 (scripts/gpu_check.sh does)",
    ),
]


def moved(value, dtype):
    """Weights, however nested, on the GPU in one type."""
    if isinstance(value, torch.Tensor):
        return value.to("cuda", dtype)
    if isinstance(value, list):
        return [moved(one, dtype) for one in value]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return type(value)(**{one.name: moved(getattr(value, one.name), dtype) for one in fields})
    return value


def answers_of(attention, *, dtype=torch.float32, block_size=16, kv_format=None):
    config, weights = random_model()
    on_gpu: LlamaWeights = moved(weights, dtype)
    generator = torch.Generator().manual_seed(4)
    prompts = [
        torch.randint(0, 256, (length,), generator=generator).tolist()
        for length in (3, 40, 170, 700, 1, 33)
    ]
    runner = runner_of(
        (config, on_gpu),
        num_blocks=2048 // block_size,
        block_size=block_size,
        attention=attention,
        kv_format=kv_format,
    )
    workload = Workload(prompts, num_outputs=16)
    return run_engine(runner, workload, max_batch=8, token_budget=128).token_ids


def share_of_equal_tokens(one, other):
    """How much of two sets of answers is the same up to each answer's first difference."""
    equal = 0
    for mine, theirs in zip(one, other, strict=True):
        for first, second in zip(mine, theirs, strict=True):
            if first != second:
                break
            equal += 1
    return equal / sum(map(len, one))


def test_blocks_swapped_to_pinned_memory_come_back_bit_for_bit():
    kv = KvTensors(
        KvShape(2, 6, 16, 2, 16),
        dtype=torch.float16,
        kv_format=KV_FORMATS["int8"],
        num_host_blocks=4,
        device="cuda",
    )
    tensors = [*kv.keys, *kv.values, *kv.key_scales, *kv.value_scales]
    for tensor in tensors:
        tensor.copy_((torch.randn(tensor.shape) * 50).to(tensor.dtype))
    before = [tensor.clone() for tensor in tensors]

    kv.swap_out([(1, 3), (4, 0)])
    for tensor in tensors:
        tensor.zero_()
    kv.swap_in([(3, 5), (0, 2)])
    kv.copy_blocks([(5, 0), (2, 5)])

    for old, new in zip(before, tensors, strict=True):
        assert torch.equal(new[[0, 5, 2]], old[[1, 4, 4]])
        assert not new[[1, 3, 4]].any()


def test_triton_gives_the_greedy_tokens_of_torch():
    assert answers_of("triton") == answers_of("torch")


def test_triton_is_what_a_gpu_gets_unasked():
    assert answers_of(None) == answers_of("triton")


@pytest.mark.parametrize("kv_format", ["int8", "fp16"])
def test_triton_reads_compressed_caches_as_torch_does(kv_format):
    got, expected = (answers_of(name, kv_format=kv_format) for name in ("triton", "torch"))

    # A number half way between two codes may be rounded either way, and a token turn on it.
    assert share_of_equal_tokens(got, expected) > 0.9


@pytest.mark.parametrize(("package", "block_size"), [("flash_attn", 256), ("flashinfer", 16)])
def test_an_installed_package_gives_about_the_tokens_of_torch(package, block_size):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    settings = {"dtype": torch.float16, "block_size": block_size}

    got, expected = (answers_of(name, **settings) for name in (package, "torch"))

    assert share_of_equal_tokens(got, expected) > 0.6
