"""A step's batch as the kernels take it: one table for all decodes, one for all chunks.

The torch path works group by group; a kernel takes rows of any length at once, reads no table entry
beyond a row's context, and needs no mask. Under a window tables begin at the first block that is
seen, so a context is counted from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.step_batch import DecodeGroup, PrefillChunk, StepBatch


@dataclass(frozen=True, slots=True)
class DecodeTables:
    """Rows [0, num_rows) of the batch, one token each.

    Attributes:
        block_tables: [num_rows, max_blocks] int32; entries past a context are some block or other.
        context_lens: [num_rows] int32, the row's own token included.
        max_context: At least the longest context, known without asking the device.
    """

    num_rows: int
    block_tables: Tensor
    context_lens: Tensor
    max_context: int


@dataclass(frozen=True, slots=True)
class ChunkTables:
    """Rows [start, end) of the batch, several tokens of each sequence.

    Attributes:
        block_tables: [num_chunks, max_blocks] int32.
        query_starts: [num_chunks + 1] int32, from 0; chunk i is rows start + [i-th, next).
        context_lens: [num_chunks] int32, up to the end of the chunk.
    """

    start: int
    end: int
    block_tables: Tensor
    query_starts: Tensor
    context_lens: Tensor
    max_chunk: int
    max_context: int


@dataclass(frozen=True, slots=True)
class StepTables:
    """What a step attends to; None for the kind of rows that it has none of."""

    decodes: DecodeTables | None
    chunks: ChunkTables | None


def step_tables(batch: StepBatch, *, block_size: int) -> StepTables:
    """Lay out a batch for the kernels, on its device and without waiting for it."""
    return StepTables(
        decodes=_decode_tables(batch.groups, block_size) if batch.groups else None,
        chunks=_chunk_tables(batch, block_size) if batch.chunks else None,
    )


def _decode_tables(groups: Sequence[DecodeGroup], block_size: int) -> DecodeTables:
    tables = [group.block_ids.view(group.end - group.start, -1) for group in groups]
    return DecodeTables(
        num_rows=groups[-1].end,
        block_tables=_stacked(tables),
        context_lens=torch.cat([group.own_slots for group in groups]).int() + 1,
        max_context=max(table.shape[1] for table in tables) * block_size,
    )


def _chunk_tables(batch: StepBatch, block_size: int) -> ChunkTables:
    chunks = batch.chunks
    sizes = [chunk.end - chunk.start for chunk in chunks]
    context_lens = [chunk.first_slot + size for chunk, size in zip(chunks, sizes, strict=True)]
    numbers = torch.tensor(
        [*context_lens, *(chunk.start - chunks[0].start for chunk in chunks), sum(sizes)],
        dtype=torch.int32,
    ).to(batch.slots.device, non_blocking=True)
    return ChunkTables(
        start=chunks[0].start,
        end=chunks[-1].end,
        block_tables=_stacked([_chunk_table(chunk, batch, block_size)[None] for chunk in chunks]),
        query_starts=numbers[len(chunks) :],
        context_lens=numbers[: len(chunks)],
        max_chunk=max(sizes),
        max_context=max(context_lens),
    )


def _chunk_table(chunk: PrefillChunk, batch: StepBatch, block_size: int) -> Tensor:
    if chunk.block_ids is not None:
        return chunk.block_ids
    # It starts its sequence, so every block_size-th of its slots opens a block.
    return batch.slots[chunk.start : chunk.end : block_size] // block_size


def _stacked(tables: Sequence[Tensor]) -> Tensor:
    """One table, as wide as the widest; what is added is never read."""
    width = max(table.shape[1] for table in tables)
    return torch.cat([functional.pad(table, (0, width - table.shape[1])) for table in tables]).int()
