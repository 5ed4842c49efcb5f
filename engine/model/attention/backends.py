"""The attention backends by name, and which one there is where nothing was asked for."""

import importlib
import logging
import os
from importlib.util import find_spec
from typing import Any, Final

from engine.model.attention.protocol import AttentionBackend, AttentionUnavailableError
from engine.model.attention.torch_attention import PagedAttention
from engine.model.kv_tensors import KvTensors

AUTO: Final = "auto"
ATTENTION_NAMES: Final = ("torch", "triton", "flash_attn", "flashinfer")
ELSE: Final = "use --attention torch, which runs anywhere"

_log = logging.getLogger(__name__)


def attention_named(name: str | None, kv: KvTensors, *, num_heads: int) -> AttentionBackend:
    """Return the backend of that name over a cache.

    Args:
        name: One of ATTENTION_NAMES; None or "auto" for triton beside a GPU and torch elsewhere.
        kv: The cache.
        num_heads: Query heads.

    Raises:
        AttentionUnavailableError: No backend has that name, a package or a GPU that it needs is
            missing, or it cannot read such a cache.
    """
    chosen = best_attention(kv) if name in (None, AUTO) else name
    if chosen == "torch":
        return PagedAttention(kv, num_heads=num_heads)
    if chosen == "triton":
        return _triton(kv, num_heads)
    if chosen == "flash_attn":
        from engine.model.attention.flash_attn import FlashAttention

        package = _package("flash_attn", install="flash-attn", kv=kv)
        return FlashAttention(kv, num_heads=num_heads, package=package)
    if chosen == "flashinfer":
        from engine.model.attention.flashinfer import FlashInferAttention

        package = _package("flashinfer", install="flashinfer-python", kv=kv)
        return FlashInferAttention(kv, num_heads=num_heads, package=package)
    known = ", ".join((AUTO, *ATTENTION_NAMES))
    raise AttentionUnavailableError(str(name), "there is none of that name", instead=f"use {known}")


def best_attention(kv: KvTensors) -> str:
    """Return the name that "auto" stands for over this cache."""
    return "triton" if _is_on_cuda(kv) and find_spec("triton") is not None else "torch"


def _triton(kv: KvTensors, num_heads: int) -> AttentionBackend:
    if find_spec("triton") is None:
        raise AttentionUnavailableError(
            "triton", "the package is not installed: pip install triton", instead=ELSE
        )
    if not _is_on_cuda(kv) and os.environ.get("TRITON_INTERPRET") != "1":
        raise AttentionUnavailableError(
            "triton",
            "it needs an NVIDIA GPU, and the model is on the CPU (TRITON_INTERPRET=1 interprets "
            "the kernels there, for tests)",
            instead=ELSE,
        )
    from engine.model.attention.triton_attention import TritonAttention

    return TritonAttention(kv, num_heads=num_heads)


def _package(module: str, *, install: str, kv: KvTensors) -> Any:
    if find_spec(module) is None:
        raise AttentionUnavailableError(
            module, f"the package is not installed: pip install {install}", instead=ELSE
        )
    if not _is_on_cuda(kv):
        raise AttentionUnavailableError(
            module, "it needs an NVIDIA GPU, and the model is on the CPU", instead=ELSE
        )
    _log.warning("attention %s is experimental: it has not run on a GPU yet", module)
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        # Wheels built for another torch or CUDA fail while their libraries are loaded.
        raise AttentionUnavailableError(
            module, f"the package is installed but does not load: {error}", instead=ELSE
        ) from error


def _is_on_cuda(kv: KvTensors) -> bool:
    return kv.keys[0].device.type == "cuda"
