"""Attention over the paged cache, by several backends behind one protocol."""

from engine.model.attention.backends import attention_named
from engine.model.attention.protocol import AttentionBackend, AttentionUnavailableError
from engine.model.attention.torch_attention import PagedAttention

__all__ = ["AttentionBackend", "AttentionUnavailableError", "PagedAttention", "attention_named"]
