"""Turn a step's plan into the tensors that the model runs on: one packed copy, then views of it.

Rows are tokens. Sequences that decode (one new token) come first, grouped so that contexts in a
group differ at most twofold, because a group is padded to its longest; then each prefill chunk. All
integers of the step travel in one int64 tensor:

    [token ids | positions | slots | sampled rows | block tables of group 0, chunk 0, …)
"""

from collections.abc import Sequence as Run
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class HasBlockIds(Protocol):
    """A block table, as far as the model cares."""

    @property
    def block_ids(self) -> Run[int]:
        """Block ids in token order."""
        ...


class RunnableSequence(Protocol):
    """A sequence, as far as the model cares."""

    @property
    def token_ids(self) -> Run[int]:
        """Prompt and generated tokens."""
        ...

    @property
    def num_tokens(self) -> int:
        """Length of `token_ids`."""
        ...

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose keys and values stand in the cache."""
        ...

    @property
    def block_table(self) -> HasBlockIds:
        """Where they stand."""
        ...


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences that run one token each: rows [start, end) of the batch.

    block_ids: [(end - start) * num_blocks] int64, each table padded by repeating its first block.
    mask: [end - start, 1, 1, num_blocks * block_size] additive, -inf beyond each context.
    """

    start: int
    end: int
    block_ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several tokens of one sequence: rows [start, end), after `num_context` computed ones.

    block_ids and mask are None for a chunk that starts its sequence: it sees only itself.
    mask: [end - start, num_blocks * block_size] additive, -inf after each token.
    """

    start: int
    end: int
    num_context: int
    block_ids: Tensor | None
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step's work on the device. `sampled` names the plan's indices, in row order."""

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    sampled_rows: Tensor
    sampled: list[int]
    groups: list[DecodeGroup]
    chunks: list[PrefillChunk]

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class _Span:
    """One sequence's rows [start, end): tokens [first, first + end - start) of sequence `index`."""

    index: int
    start: int
    end: int
    first: int
    num_blocks: int


def pack_step(
    sequences: Run[RunnableSequence],
    num_new_tokens: Run[int],
    *,
    block_size: int,
    device: torch.device,
) -> StepBatch:
    """Lay out a step. Every sequence runs its new tokens from its computed ones on."""
    order = sorted(
        range(len(sequences)),
        key=lambda index: _group_key(sequences[index], num_new_tokens[index], block_size),
    )
    spans: list[_Span] = []
    for index in order:
        first, num_new = sequences[index].num_computed_tokens, num_new_tokens[index]
        start = spans[-1].end if spans else 0
        num_blocks = -(-(first + num_new) // block_size)
        spans.append(_Span(index, start, start + num_new, first, num_blocks))
    grouped = _group_decodes(spans)
    chunks = spans[sum(len(group) for group in grouped) :]
    return _Packer(sequences, spans, block_size).pack(grouped, chunks, device)


def _group_key(sequence: RunnableSequence, num_new: int, block_size: int) -> tuple[bool, int]:
    num_blocks = -(-(sequence.num_computed_tokens + num_new) // block_size)
    return (_is_chunk(num_new), num_blocks)


def _is_chunk(num_new: int) -> bool:
    # A one-token prompt has no context to gather, yet decodes like any other: it sees itself.
    return num_new != 1


def _group_decodes(spans: list[_Span]) -> list[list[_Span]]:
    """Split the one-token spans, sorted by context, where the longest passes twice the shortest."""
    groups: list[list[_Span]] = []
    for span in spans:
        if span.end - span.start != 1:
            break
        if groups and span.num_blocks <= 2 * groups[-1][0].num_blocks:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


class _Packer:
    """Collects a step's integers, copies them to the device once and cuts views."""

    def __init__(
        self, sequences: Run[RunnableSequence], spans: list[_Span], block_size: int
    ) -> None:
        self._sequences, self._spans, self._block_size = sequences, spans, block_size
        self._tables = {
            span.index: np.array(
                sequences[span.index].block_table.block_ids[: span.num_blocks], np.int64
            )
            for span in spans
        }

    def pack(
        self, groups: list[list[_Span]], chunks: list[_Span], device: torch.device
    ) -> StepBatch:
        sampled = [span for span in self._spans if self._reaches_end(span)]
        parts = [
            np.concatenate([self._tokens(span) for span in self._spans]),
            np.concatenate([self._positions(span) for span in self._spans]),
            np.concatenate([self._slots(span) for span in self._spans]),
            np.array([span.end - 1 for span in sampled], np.int64),
            *(self._padded_tables(group) for group in groups),
            *(self._tables[span.index] for span in chunks if span.first),
        ]
        packed = torch.from_numpy(np.concatenate(parts)).to(device)
        views = torch.split(packed, [len(part) for part in parts])
        token_ids, positions, slots, rows = views[:4]
        group_tables = views[4 : 4 + len(groups)]
        chunk_tables = iter(views[4 + len(groups) :])
        return StepBatch(
            token_ids=token_ids,
            positions=positions,
            slots=slots,
            sampled_rows=rows,
            sampled=[span.index for span in sampled],
            groups=[
                self._group(group, table, positions)
                for group, table in zip(groups, group_tables, strict=True)
            ],
            chunks=[
                self._chunk(span, next(chunk_tables) if span.first else None, positions)
                for span in chunks
            ],
        )

    def _reaches_end(self, span: _Span) -> bool:
        return span.first + span.end - span.start == self._sequences[span.index].num_tokens

    def _tokens(self, span: _Span) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        token_ids = self._sequences[span.index].token_ids
        return np.array(token_ids[span.first : span.first + span.end - span.start], np.int64)

    def _positions(self, span: _Span) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.arange(span.first, span.first + span.end - span.start, dtype=np.int64)

    def _slots(self, span: _Span) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        positions = self._positions(span)
        blocks = self._tables[span.index][positions // self._block_size]
        return np.asarray(blocks * self._block_size + positions % self._block_size)

    def _padded_tables(self, group: list[_Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        # Sorted by context: the last is the longest.
        padded = np.empty((len(group), group[-1].num_blocks), np.int64)
        for row, span in enumerate(group):
            table = self._tables[span.index]
            padded[row, : span.num_blocks] = table
            padded[row, span.num_blocks :] = table[0]
        return padded.reshape(-1)

    def _group(self, group: list[_Span], table: Tensor, positions: Tensor) -> DecodeGroup:
        start, end = group[0].start, group[-1].end
        num_slots = group[-1].num_blocks * self._block_size
        mask = _mask_after(positions[start:end], num_slots)
        return DecodeGroup(start, end, table, mask.view(end - start, 1, 1, num_slots))

    def _chunk(self, span: _Span, table: Tensor | None, positions: Tensor) -> PrefillChunk:
        mask = None
        if table is not None:
            mask = _mask_after(positions[span.start : span.end], span.num_blocks * self._block_size)
        return PrefillChunk(span.start, span.end, span.first, table, mask)


def _mask_after(positions: Tensor, num_slots: int) -> Tensor:
    """[len(positions), num_slots] fp32: 0 up to and including each position, -inf after."""
    slots = torch.arange(num_slots, device=positions.device)
    mask = torch.zeros((len(positions), num_slots), device=positions.device)
    return mask.masked_fill_(slots > positions[:, None], float("-inf"))
