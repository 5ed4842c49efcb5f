"""Attention by the package `flash-attn` (version 2), over the same cache and block tables.

Experimental: held against the package's documented signatures, not yet run on a GPU.

Source: Dao 2023 (arXiv:2307.08691); `flash_attn_with_kvcache` and `flash_attn_varlen_func` of
flash_attn/flash_attn_interface.py, version 2.8.
"""

from typing import Final, Protocol

import torch
from torch import Tensor

from engine.model.attention.protocol import AttentionUnavailableError
from engine.model.attention.step_tables import ChunkTables, DecodeTables, StepTables, step_tables
from engine.model.kv_tensors import KvTensors
from engine.model.step_batch import StepBatch

# The package refuses paged caches with other blocks.
BLOCK_MULTIPLE: Final = 256
MOST_HEAD_DIM: Final = 256
ALL: Final = (-1, -1)


class FlashAttnPackage(Protocol):
    """What of the package is called."""

    def flash_attn_with_kvcache(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        *,
        cache_seqlens: Tensor,
        block_table: Tensor,
        causal: bool,
        window_size: tuple[int, int],
    ) -> Tensor:
        """Attend from [batch, 1, heads, dim]."""
        ...

    def flash_attn_varlen_func(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        causal: bool,
        window_size: tuple[int, int],
        block_table: Tensor,
    ) -> Tensor:
        """Attend from [tokens, heads, dim]."""
        ...


class FlashAttention:
    """Attention of one step's batch by flash-attn."""

    name: Final = "flash_attn"

    def __init__(self, kv: KvTensors, *, num_heads: int, package: FlashAttnPackage) -> None:
        """Attend over `kv`.

        Raises:
            AttentionUnavailableError: The cache is not one that the package reads.
        """
        self._require_fit(kv)
        self._kv = kv
        self._num_heads = num_heads
        self._package = package
        self._tables = StepTables(None, None)
        self._key_starts: Tensor | None = None

    def _require_fit(self, kv: KvTensors) -> None:
        if kv.shape.block_size % BLOCK_MULTIPLE:
            raise AttentionUnavailableError(
                self.name,
                f"it takes blocks of a multiple of {BLOCK_MULTIPLE} tokens, not "
                f"{kv.shape.block_size}",
                instead=f"use --block-size {BLOCK_MULTIPLE}, or --attention triton",
            )
        if kv.dtype != kv.compute_dtype or kv.dtype not in (torch.float16, torch.bfloat16):
            raise AttentionUnavailableError(
                self.name,
                f"it reads caches of fp16 or bf16 in the model's own type, not {kv.format.name}",
                instead="load the model in fp16 or bf16, or use --attention triton",
            )
        if kv.shape.head_dim % 8 or kv.shape.head_dim > MOST_HEAD_DIM:
            raise AttentionUnavailableError(
                self.name,
                f"it takes heads of a multiple of 8 up to {MOST_HEAD_DIM}, not {kv.shape.head_dim}",
                instead="use --attention triton",
            )

    def prepare(self, batch: StepBatch) -> None:
        """Lay out the tables, and where each chunk's keys would begin."""
        self._tables = step_tables(batch, block_size=self._kv.shape.block_size)
        chunks = self._tables.chunks
        if chunks is not None:
            ends = chunks.context_lens.cumsum(0, dtype=torch.int32)
            self._key_starts = torch.cat([ends.new_zeros(1), ends])

    def store(self, layer: int, *, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write each row's key and value into its slot."""
        self._kv.store(layer, key=key, value=value, slots=slots)

    def __call__(
        self,
        layer: int,
        batch: StepBatch,
        *,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
    ) -> None:
        """Attend for every row of the batch that was prepared; `key` and `value` are not read."""
        heads_out = out.view(len(query), self._num_heads, -1)
        # Both sides are inclusive there: a window of w is w - 1 to the left and none to the right.
        window = ALL if batch.window is None else (batch.window - 1, 0)
        decodes, chunks = self._tables.decodes, self._tables.chunks
        if decodes is not None:
            rows = slice(decodes.num_rows)
            heads_out[rows] = self._decode(layer, decodes, window, query[rows])
        if chunks is not None:
            rows = slice(chunks.start, chunks.end)
            heads_out[rows] = self._prefill(layer, chunks, window, query[rows])

    def _decode(
        self, layer: int, decodes: DecodeTables, window: tuple[int, int], query: Tensor
    ) -> Tensor:
        return self._package.flash_attn_with_kvcache(
            query[:, None],
            self._kv.keys[layer],
            self._kv.values[layer],
            cache_seqlens=decodes.context_lens,
            block_table=decodes.block_tables,
            causal=True,
            window_size=window,
        )[:, 0]

    def _prefill(
        self, layer: int, chunks: ChunkTables, window: tuple[int, int], query: Tensor
    ) -> Tensor:
        assert self._key_starts is not None
        return self._package.flash_attn_varlen_func(
            query,
            self._kv.keys[layer],
            self._kv.values[layer],
            cu_seqlens_q=chunks.query_starts,
            cu_seqlens_k=self._key_starts,
            max_seqlen_q=chunks.max_chunk,
            max_seqlen_k=chunks.max_context,
            causal=True,
            window_size=window,
            block_table=chunks.block_tables,
        )
