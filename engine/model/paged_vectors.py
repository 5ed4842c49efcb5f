"""One paged tensor of vectors, written by slot and read by block, in any KV format."""

from typing import Protocol

import torch
from torch import Tensor

from engine.model.kv_formats import SCALE_DTYPE, KvFormat


class PagedVectors(Protocol):
    """The keys, or the values, of one layer."""

    @property
    def tensors(self) -> list[Tensor]:
        """What is allocated, [num_blocks, …] each."""
        ...

    def store(self, vectors: Tensor, slots: Tensor) -> None:
        """Write [num_tokens, num_heads, head_dim] to `slots`, [num_tokens] int64."""

    def gather(self, block_ids: Tensor, out: Tensor) -> Tensor:
        """Copy whole blocks into the flat `out`; [n x block_size, num_heads, head_dim]."""
        ...


class PlainVectors:
    """Vectors kept in the very type that the model computes in."""

    def __init__(self, stored: Tensor) -> None:
        """Take [num_blocks, block_size, num_heads, head_dim]; the tensor stays the caller's."""
        self.tensors = [stored]
        self._vector_shape = (-1, *stored.shape[2:])
        # The same memory, seen as one row per slot and as one row per block.
        self._slot_rows = stored.view(stored.shape[0] * stored.shape[1], -1)
        self._block_rows = stored.view(stored.shape[0], -1)
        self._row_length = self._block_rows.shape[1]

    def store(self, vectors: Tensor, slots: Tensor) -> None:
        """Write vectors to their slots."""
        self._slot_rows.index_copy_(0, slots, vectors.reshape(len(vectors), -1))

    def gather(self, block_ids: Tensor, out: Tensor) -> Tensor:
        """Copy whole blocks, in the order named."""
        rows = out[: len(block_ids) * self._row_length].view(-1, self._row_length)
        torch.index_select(self._block_rows, 0, block_ids, out=rows)
        return rows.view(self._vector_shape)


class CodedVectors:
    """Vectors coded when they are stored and decoded when they are gathered."""

    def __init__(self, stored: Tensor, kv_format: KvFormat) -> None:
        """Take [num_blocks, block_size, num_heads, head_dim] of the format's type."""
        self._codec, self._dtype = kv_format.codec, stored.dtype
        self._vector_shape = (-1, *stored.shape[2:])
        # Not every torch has index operations on fp8; bits move the same under any name.
        bits = stored.view(torch.uint8) if stored.dtype.itemsize == 1 else stored
        self._slot_codes = bits.view(stored.shape[0] * stored.shape[1], -1)
        self._block_codes = bits.view(stored.shape[0], -1)
        self.scales = None
        self.tensors = [stored]
        if kv_format.scale_bytes:
            self.scales = stored.new_zeros(stored.shape[:3], dtype=SCALE_DTYPE)
            self.tensors.append(self.scales)
            self._slot_scales = self.scales.view(len(self._slot_codes), -1)
            self._block_scales = self.scales.view(stored.shape[0], -1)

    def store(self, vectors: Tensor, slots: Tensor) -> None:
        """Code vectors and write them to their slots."""
        codes, scales = self._codec.encode(vectors, self._dtype)
        codes = codes.reshape(len(vectors), -1).view(self._slot_codes.dtype)
        self._slot_codes.index_copy_(0, slots, codes)
        if scales is not None:
            self._slot_scales.index_copy_(0, slots, scales)

    def gather(self, block_ids: Tensor, out: Tensor) -> Tensor:
        """Decode whole blocks, in the order named."""
        codes = self._block_codes.index_select(0, block_ids)
        vectors = out[: codes.numel()].view(self._vector_shape)
        scales = None
        if self.scales is not None:
            scales = self._block_scales.index_select(0, block_ids).view(vectors.shape[:2])
        self._codec.decode(codes.view(self._dtype).view(vectors.shape), scales, vectors)
        return vectors


def paged_vectors(stored: Tensor, kv_format: KvFormat, compute_dtype: torch.dtype) -> PagedVectors:
    """Return the way to reach `stored`, [num_blocks, block_size, num_heads, head_dim]."""
    if kv_format.dtype == compute_dtype and not kv_format.scale_bytes:
        return PlainVectors(stored)
    return CodedVectors(stored, kv_format)
