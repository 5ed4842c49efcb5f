"""Attention by this repository's own Triton kernels, straight from the paged cache.

Every KV format is read and written as it is stored: int8 and fp8 are widened in registers, and
nothing is gathered. With CUDA; without, Triton's interpreter runs it for tests, slowly.
"""

from typing import Final

import torch
from torch import Tensor

from engine.model.attention.step_tables import ChunkTables, DecodeTables, StepTables, step_tables
from engine.model.kv_tensors import KvTensors
from engine.model.step_batch import StepBatch
from kernels.cache_tensors import CacheTensors
from kernels.decode import paged_decode
from kernels.prefill import paged_prefill
from kernels.split_decode import split_decode
from kernels.store import store_kv
from kernels.tiles import choose_splits


class TritonAttention:
    """Attention of one step's batch by kernel launches: two for all its rows.

    Attributes:
        num_splits: Into how many parts the contexts of the prepared batch's decodes are cut.
    """

    name: Final = "triton"

    def __init__(self, kv: KvTensors, *, num_heads: int, num_cores: int | None = None) -> None:
        """Attend over `kv`.

        Args:
            kv: The cache, in any format.
            num_heads: Query heads.
            num_cores: Multiprocessors to fill; by default those of the cache's device.
        """
        self._kv = kv
        self._num_heads = num_heads
        self._num_cores = num_cores or _multiprocessors(kv.keys[0].device)
        self._tables = StepTables(None, None)
        self.num_splits = 1

    def prepare(self, batch: StepBatch) -> None:
        """Lay out the tables, and decide whether decodes are split."""
        self._tables = step_tables(batch, block_size=self._kv.shape.block_size)
        decodes = self._tables.decodes
        if decodes is not None:
            self.num_splits = choose_splits(
                num_programs=decodes.num_rows * self._kv.shape.num_kv_heads,
                max_context=min(decodes.max_context, batch.window or decodes.max_context),
                num_cores=self._num_cores,
            )

    def store(self, layer: int, *, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write each row's key and value into its slot, coded as the cache is."""
        store_kv(key=key, value=value, slots=slots, **self._caches(layer))

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
        decodes, chunks = self._tables.decodes, self._tables.chunks
        if decodes is not None:
            rows = slice(decodes.num_rows)
            heads_out[rows] = self._decode(layer, decodes, batch.window, query[rows])
        if chunks is not None:
            rows = slice(chunks.start, chunks.end)
            heads_out[rows] = self._prefill(layer, chunks, batch.window, query[rows])

    def _decode(
        self, layer: int, decodes: DecodeTables, window: int | None, query: Tensor
    ) -> Tensor:
        if self.num_splits == 1:
            return paged_decode(
                query=query,
                block_tables=decodes.block_tables,
                context_lens=decodes.context_lens,
                window=window,
                **self._caches(layer),
            )
        return split_decode(
            query=query,
            block_tables=decodes.block_tables,
            context_lens=decodes.context_lens,
            num_splits=self.num_splits,
            window=window,
            **self._caches(layer),
        )

    def _prefill(
        self, layer: int, chunks: ChunkTables, window: int | None, query: Tensor
    ) -> Tensor:
        return paged_prefill(
            query=query,
            block_tables=chunks.block_tables,
            query_starts=chunks.query_starts,
            context_lens=chunks.context_lens,
            max_chunk=chunks.max_chunk,
            window=window,
            **self._caches(layer),
        )

    def _caches(self, layer: int) -> CacheTensors:
        has_scales = bool(self._kv.key_scales)
        return {
            "key_cache": self._kv.keys[layer],
            "value_cache": self._kv.values[layer],
            "key_scales": self._kv.key_scales[layer] if has_scales else None,
            "value_scales": self._kv.value_scales[layer] if has_scales else None,
        }


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
