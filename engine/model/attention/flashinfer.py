"""Attention by the package `flashinfer`, over the same cache and block tables.

Its wrappers are planned once per step, on lengths and block ids in the form of compressed rows, and
run once per layer. Planning reads the lengths back from the device.

Experimental: held against the package's documented signatures, not yet run on a GPU.

Source: Ye et al. 2025 (arXiv:2501.01005); `BatchDecodeWithPagedKVCacheWrapper` and
`BatchPrefillWithPagedKVCacheWrapper` of FlashInfer 0.6.
"""

from typing import Final, NamedTuple, Protocol

import torch
from torch import Tensor

from engine.model.attention.protocol import AttentionUnavailableError
from engine.model.attention.step_tables import StepTables, step_tables
from engine.model.kv_tensors import KvTensors
from engine.model.step_batch import StepBatch

# What the package's documentation recommends.
WORKSPACE_BYTES: Final = 128 << 20
# Tensor cores pay for the decode from this many query heads per key head on.
SHARED_FOR_TENSOR_CORES: Final = 4
COMPUTE_TYPES: Final = (torch.float16, torch.bfloat16)


class DecodeWrapper(Protocol):
    """What of the package's decode wrapper is called."""

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Prepare for a batch."""

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        """Attend from [batch, heads, dim]."""
        ...


class PrefillWrapper(Protocol):
    """What of the package's prefill wrapper is called."""

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        window_left: int,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Prepare for a batch."""

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        """Attend from [tokens, heads, dim]."""
        ...


class FlashInferPackage(Protocol):
    """What of the package is called."""

    def BatchDecodeWithPagedKVCacheWrapper(  # noqa: N802 - the package's own name
        self, float_workspace_buffer: Tensor, kv_layout: str, *, use_tensor_cores: bool
    ) -> DecodeWrapper:
        """Make a decode wrapper."""
        ...

    def BatchPrefillWithPagedKVCacheWrapper(  # noqa: N802 - the package's own name
        self, float_workspace_buffer: Tensor, kv_layout: str
    ) -> PrefillWrapper:
        """Make a prefill wrapper."""
        ...


class CompressedTables(NamedTuple):
    """Block tables as compressed rows: row i is indices[starts[i] : starts[i + 1]]; int32 all.

    Attributes:
        last_lens: Tokens in each row's last block, 1 to block_size.
    """

    starts: Tensor
    indices: Tensor
    last_lens: Tensor


class FlashInferAttention:
    """Attention of one step's batch by FlashInfer."""

    name: Final = "flashinfer"

    def __init__(self, kv: KvTensors, *, num_heads: int, package: FlashInferPackage) -> None:
        """Attend over `kv`; takes 128 MiB of workspace for each kind of row.

        Raises:
            AttentionUnavailableError: The cache is not one that the package reads.
        """
        self._require_fit(kv)
        self._kv = kv
        self._num_heads = num_heads
        num_shared = num_heads // kv.shape.num_kv_heads
        self._decode = package.BatchDecodeWithPagedKVCacheWrapper(
            _workspace(kv), "NHD", use_tensor_cores=num_shared >= SHARED_FOR_TENSOR_CORES
        )
        self._prefill = package.BatchPrefillWithPagedKVCacheWrapper(_workspace(kv), "NHD")
        self._tables = StepTables(None, None)

    def _require_fit(self, kv: KvTensors) -> None:
        if kv.compute_dtype not in COMPUTE_TYPES or kv.format.name not in ("fp16", "bf16", "fp8"):
            raise AttentionUnavailableError(
                self.name,
                f"it computes in fp16 or bf16 over caches of fp16, bf16 or fp8, not in "
                f"{kv.compute_dtype} over {kv.format.name}",
                instead="load the model in fp16 or bf16, or use --attention triton",
            )

    def prepare(self, batch: StepBatch) -> None:
        """Plan both wrappers for the batch."""
        shape = self._kv.shape
        self._tables = step_tables(batch, block_size=shape.block_size)
        window_left = -1 if batch.window is None else batch.window - 1
        decodes, chunks = self._tables.decodes, self._tables.chunks
        if decodes is not None:
            rows = compressed(decodes.block_tables, decodes.context_lens, shape.block_size)
            self._decode.plan(
                *rows,
                self._num_heads,
                shape.num_kv_heads,
                shape.head_dim,
                shape.block_size,
                window_left=window_left,
                q_data_type=self._kv.compute_dtype,
                kv_data_type=self._kv.dtype,
            )
        if chunks is not None:
            rows = compressed(chunks.block_tables, chunks.context_lens, shape.block_size)
            self._prefill.plan(
                chunks.query_starts,
                *rows,
                self._num_heads,
                shape.num_kv_heads,
                shape.head_dim,
                shape.block_size,
                causal=True,
                window_left=window_left,
                q_data_type=self._kv.compute_dtype,
                kv_data_type=self._kv.dtype,
            )

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
        cache = (self._kv.keys[layer], self._kv.values[layer])
        decodes, chunks = self._tables.decodes, self._tables.chunks
        if decodes is not None:
            rows = slice(decodes.num_rows)
            heads_out[rows] = self._decode.run(query[rows].contiguous(), cache)
        if chunks is not None:
            rows = slice(chunks.start, chunks.end)
            heads_out[rows] = self._prefill.run(query[rows].contiguous(), cache)


def compressed(block_tables: Tensor, context_lens: Tensor, block_size: int) -> CompressedTables:
    """Leave out of each table what its context does not reach.

    Args:
        block_tables: [num_rows, max_blocks] int32.
        context_lens: [num_rows] int32, at least 1 each.
        block_size: Tokens of a block.
    """
    num_blocks = (context_lens + block_size - 1) // block_size
    columns = torch.arange(block_tables.shape[1], device=block_tables.device)
    ends = num_blocks.cumsum(0, dtype=torch.int32)
    return CompressedTables(
        starts=torch.cat([ends.new_zeros(1), ends]),
        indices=block_tables[columns < num_blocks[:, None]],
        last_lens=(context_lens - 1) % block_size + 1,
    )


def _workspace(kv: KvTensors) -> Tensor:
    # Zeros: the package asks for them at the first use.
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=kv.keys[0].device)
