"""Choosing an attention backend: by name, by what is there, with an answer where it is not."""

import types

import pytest
import torch

from engine.model.attention import AttentionUnavailableError, attention_named, backends
from engine.model.attention.flash_attn import FlashAttention
from engine.model.attention.flashinfer import FlashInferAttention
from engine.model.kv_formats import KV_FORMATS
from engine.model.kv_tensors import KvShape, KvTensors
from engine.server.serve_options import ATTENTION_NAMES
from tests.engine.factories_attention_packages import FakeFlashAttn, FakeFlashInfer
from tests.engine.factories_model import random_model, runner_of


def cache(*, dtype=torch.float16, block_size=16, head_dim=16, kv_format=None):
    shape = KvShape(1, 2, block_size, 2, head_dim)
    return KvTensors(shape, dtype=dtype, kv_format=kv_format)


@pytest.fixture
def on_gpu(monkeypatch):
    """Let the registry take a cache in host memory for one on a GPU."""
    monkeypatch.setattr(backends, "_is_on_cuda", lambda kv: True)


def installed(monkeypatch, **packages):
    """Let these packages, and torch and triton, be all that is installed."""
    known = {"torch", "triton", *packages}
    monkeypatch.setattr(backends, "find_spec", lambda name: name if name in known else None)
    monkeypatch.setattr(backends.importlib, "import_module", packages.__getitem__)


def test_the_best_on_a_cpu_is_torch_and_beside_a_gpu_triton(monkeypatch):
    assert attention_named(None, cache(), num_heads=4).name == "torch"
    assert attention_named("auto", cache(), num_heads=4).name == "torch"

    monkeypatch.setattr(backends, "_is_on_cuda", lambda kv: True)

    assert backends.best_attention(cache()) == "triton"


def test_beside_a_gpu_without_triton_the_best_is_torch(monkeypatch, on_gpu):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)

    assert backends.best_attention(cache()) == "torch"


def test_the_server_offers_the_names_that_there_are():
    assert set(backends.ATTENTION_NAMES) <= set(ATTENTION_NAMES)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttentionUnavailableError, match="auto, torch, triton, flash_attn"):
        attention_named("xformers", cache(), num_heads=4)


@pytest.mark.parametrize(
    ("name", "install"), [("flash_attn", "flash-attn"), ("flashinfer", "flashinfer-python")]
)
def test_a_missing_package_is_named_with_how_to_get_it_and_what_else_there_is(
    monkeypatch, name, install
):
    installed(monkeypatch)

    with pytest.raises(AttentionUnavailableError) as caught:
        attention_named(name, cache(), num_heads=4)

    assert f"pip install {install}" in str(caught.value)
    assert "--attention torch" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["flash_attn", "flashinfer"])
def test_a_package_without_a_gpu_says_so(monkeypatch, name):
    installed(monkeypatch, flash_attn=types.SimpleNamespace(), flashinfer=types.SimpleNamespace())

    with pytest.raises(AttentionUnavailableError, match="needs an NVIDIA GPU"):
        attention_named(name, cache(), num_heads=4)


def test_a_package_that_does_not_load_gives_its_own_reason(monkeypatch, on_gpu):
    installed(monkeypatch, flash_attn=None)

    def fail(name):
        raise ImportError("undefined symbol: _ZN3c105ErrorC2E")

    monkeypatch.setattr(backends.importlib, "import_module", fail)

    with pytest.raises(AttentionUnavailableError, match="undefined symbol"):
        attention_named("flash_attn", cache(), num_heads=4)


def test_triton_without_a_gpu_says_so_unless_it_is_interpreted(monkeypatch):
    assert attention_named("triton", cache(), num_heads=4).name == "triton"

    monkeypatch.setenv("TRITON_INTERPRET", "0")

    with pytest.raises(AttentionUnavailableError, match="TRITON_INTERPRET=1"):
        attention_named("triton", cache(), num_heads=4)


def test_installed_packages_beside_a_gpu_are_taken_and_called_experimental(
    monkeypatch, on_gpu, caplog
):
    installed(monkeypatch, flash_attn=FakeFlashAttn(), flashinfer=FakeFlashInfer())

    flash = attention_named("flash_attn", cache(block_size=256), num_heads=4)
    infer = attention_named("flashinfer", cache(), num_heads=8)

    assert isinstance(flash, FlashAttention)
    assert isinstance(infer, FlashInferAttention)
    assert [message.split(":")[0] for message in caplog.messages] == [
        "attention flash_attn is experimental",
        "attention flashinfer is experimental",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 16}, "multiple of 256 tokens, not 16"),
        ({"block_size": 256, "dtype": torch.float32}, "fp16 or bf16"),
        ({"block_size": 256, "kv_format": KV_FORMATS["int8"]}, "not int8"),
        ({"block_size": 256, "head_dim": 20}, "multiple of 8"),
    ],
)
def test_flash_attn_refuses_a_cache_that_it_cannot_read(settings, message):
    with pytest.raises(AttentionUnavailableError, match=message):
        FlashAttention(cache(**settings), num_heads=4, package=FakeFlashAttn())


@pytest.mark.parametrize("settings", [{"dtype": torch.float32}, {"kv_format": KV_FORMATS["int8"]}])
def test_flashinfer_refuses_a_cache_that_it_cannot_read(settings):
    with pytest.raises(AttentionUnavailableError, match="fp16, bf16 or fp8"):
        FlashInferAttention(cache(**settings), num_heads=4, package=FakeFlashInfer())


def test_a_runner_is_refused_an_attention_that_cannot_run_here():
    with pytest.raises(AttentionUnavailableError, match="flashinfer"):
        runner_of(random_model(), attention="flashinfer")
