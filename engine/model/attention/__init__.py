"""Attention over the paged cache, by several backends behind one protocol."""

from engine.model.attention.protocol import AttentionBackend
from engine.model.attention.torch_attention import PagedAttention

__all__ = ["AttentionBackend", "PagedAttention"]
