"""Turn a step's plan into the tensors that the model runs on: one packed copy, then views of it.

Rows are tokens. Sequences that decode (one new token) come first, grouped so that contexts in a
group differ at most twofold, because a group is padded to its longest; then each prefill chunk. All
integers of the step travel in one int64 tensor:

    [token ids | positions | slots | sampled rows | block tables of group 0, chunk 0, …)

Under a sliding window a row sees only the last `window` positions, its own included. Tables then
begin at the first block that is seen: what lies behind the window, freed or not, is not even read.
"""

from collections.abc import Sequence as Run
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


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
    mask: [end - start, 1, 1, num_blocks * block_size] additive, -inf beyond what a row sees.
    own_slots: [end - start] int64, where each row's own token stands among its table's slots: its
        position, less what the table leaves out in front.
    """

    start: int
    end: int
    block_ids: Tensor
    mask: Tensor
    own_slots: Tensor


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several tokens of one sequence: rows [start, end), after `num_context` computed ones.

    block_ids is None for a chunk that starts its sequence, unless the cache rounds: it sees only
        itself, and has a mask only where a window cuts into it.
    mask: [end - start, num_blocks * block_size, or end - start] additive, -inf beyond what a row
        sees; None where that is all up to the row's own token.
    first_slot: Where the first row's token stands among the slots of `block_ids`: `num_context`,
        less what the table leaves out in front.
    """

    start: int
    end: int
    num_context: int
    block_ids: Tensor | None
    mask: Tensor | None
    first_slot: int


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step's work on the device. `sampled` names the plan's indices, in row order.

    Attributes:
        window: How many positions a row sees, its own included; None for all.
        others: The same rows as each further KV group has and sees them.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    sampled_rows: Tensor
    sampled: list[int]
    groups: list[DecodeGroup]
    chunks: list[PrefillChunk]
    window: int | None = None
    others: "tuple[StepBatch, ...]" = ()

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return len(self.token_ids)


class _Span(NamedTuple):
    """One sequence's rows [start, end): its tokens [first, first + end - start).

    They see `num_blocks` blocks of its table, from `first_block` on.
    """

    plan_idx: int
    start: int
    end: int
    first: int
    first_block: int
    num_blocks: int


class TablePart(NamedTuple):
    """Every `num_groups`-th entry of a table, from the `group`-th on: those of one KV group."""

    group: int
    num_groups: int

    def of(self, sequence: RunnableSequence, span: _Span) -> Integers:
        """Return the blocks of a sequence that its rows see."""
        start = span.first_block * self.num_groups + self.group
        end = (span.first_block + span.num_blocks) * self.num_groups
        block_ids = sequence.block_table.block_ids[start : end : self.num_groups]
        table = np.array(block_ids, np.int64)
        # A null entry (-1) lies behind every row's window; block 0 stands in, and is masked.
        return np.maximum(table, 0) if span.first_block else table


WHOLE_TABLE: Final = TablePart(0, 1)


class _Sizes(NamedTuple):
    """What a packer goes by."""

    block_size: int
    window: int | None
    cache_rounds: bool


def pack_step(
    sequences: Run[RunnableSequence],
    num_new_tokens: Run[int],
    *,
    block_size: int,
    device: torch.device,
    window: int | None = None,
    cache_rounds: bool = False,
    table: TablePart = WHOLE_TABLE,
) -> StepBatch:
    """Lay out a step. Every sequence runs its new tokens from its computed ones on.

    Args:
        sequences: What runs.
        num_new_tokens: How many tokens of each.
        block_size: Tokens of a block.
        device: Where the tensors go.
        window: How many positions a row sees; the order of rows does not depend on it.
        cache_rounds: Whether what is read back differs from what was stored. Then a chunk that
            starts its sequence reads its rows back as well, lest answers depend on where it ends.
        table: Which entries of the sequences' tables are of this group of layers.
    """
    order = sorted(
        range(len(sequences)),
        key=lambda index: _group_key(sequences[index], num_new_tokens[index], block_size),
    )
    spans: list[_Span] = []
    for index in order:
        first, num_new = sequences[index].num_computed_tokens, num_new_tokens[index]
        start = spans[-1].end if spans else 0
        first_block = 0 if window is None else max(0, first + 1 - window) // block_size
        num_blocks = -(-(first + num_new) // block_size) - first_block
        spans.append(_Span(index, start, start + num_new, first, first_block, num_blocks))
    grouped = _group_decodes(spans)
    tables = {span.plan_idx: table.of(sequences[span.plan_idx], span) for span in spans}
    sizes = _Sizes(block_size, window, cache_rounds)
    packer = _Packer(sequences, spans, tables, sizes)
    return packer.pack(grouped, device)


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
        self,
        sequences: Run[RunnableSequence],
        spans: list[_Span],
        tables: dict[int, Integers],
        sizes: _Sizes,
    ) -> None:
        self._sequences, self._spans, self._tables = sequences, spans, tables
        self._block_size, self._window, self._cache_rounds = sizes

    def pack(self, groups: list[list[_Span]], device: torch.device) -> StepBatch:
        sampled = [span for span in self._spans if self._reaches_end(span)]
        num_decodes = sum(len(group) for group in groups)
        decodes, chunks = self._spans[:num_decodes], self._spans[num_decodes:]
        parts = [
            np.concatenate([self._tokens_of(decodes), *map(self._tokens, chunks)]),
            np.concatenate([_positions_of(decodes), *map(_positions, chunks)]),
            np.concatenate([self._slots_of(decodes), *map(self._slots, chunks)]),
            np.array([span.end - 1 for span in sampled], np.int64),
            *(self._padded_tables(group) for group in groups),
            *(self._tables[span.plan_idx] for span in chunks if self._reads_back(span)),
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
            sampled=[span.plan_idx for span in sampled],
            window=self._window,
            groups=[
                self._group(group, table, positions)
                for group, table in zip(groups, group_tables, strict=True)
            ],
            chunks=[
                self._chunk(span, next(chunk_tables) if self._reads_back(span) else None, positions)
                for span in chunks
            ],
        )

    def _reads_back(self, chunk: _Span) -> bool:
        return chunk.first > 0 or self._cache_rounds

    def _reaches_end(self, span: _Span) -> bool:
        return span.first + span.end - span.start == self._sequences[span.plan_idx].num_tokens

    def _tokens_of(self, decodes: list[_Span]) -> Integers:
        token_ids = [self._sequences[span.plan_idx].token_ids[span.first] for span in decodes]
        return np.array(token_ids, np.int64)

    def _slots_of(self, decodes: list[_Span]) -> Integers:
        # The one token of a decode stands in the last block of its table.
        last_blocks = [self._tables[span.plan_idx][-1] for span in decodes]
        slots = np.array(last_blocks, np.int64) * self._block_size
        slots += _positions_of(decodes) % self._block_size
        return slots

    def _tokens(self, span: _Span) -> Integers:
        token_ids = self._sequences[span.plan_idx].token_ids
        return np.array(token_ids[span.first : span.first + span.end - span.start], np.int64)

    def _slots(self, span: _Span) -> Integers:
        positions = _positions(span)
        blocks = self._tables[span.plan_idx][positions // self._block_size - span.first_block]
        return np.asarray(blocks * self._block_size + positions % self._block_size)

    def _padded_tables(self, group: list[_Span]) -> Integers:
        padded = np.empty((len(group), _width(group)), np.int64)
        for row, span in enumerate(group):
            table = self._tables[span.plan_idx]
            padded[row, : span.num_blocks] = table
            padded[row, span.num_blocks :] = table[0]
        return padded.reshape(-1)

    def _group(self, group: list[_Span], table: Tensor, positions: Tensor) -> DecodeGroup:
        start, end = group[0].start, group[-1].end
        num_slots = _width(group) * self._block_size
        own_slots = positions[start:end]
        if self._window is not None:
            left_out = [span.first_block * self._block_size for span in group]
            own_slots = own_slots - torch.tensor(left_out, device=own_slots.device)
        mask = _mask(own_slots, num_slots, self._window)
        return DecodeGroup(
            start, end, table, mask.view(end - start, 1, 1, num_slots), own_slots=own_slots
        )

    def _chunk(self, span: _Span, table: Tensor | None, positions: Tensor) -> PrefillChunk:
        num_rows, left_out = span.end - span.start, span.first_block * self._block_size
        mask = None
        if table is not None:
            own_slots = positions[span.start : span.end] - left_out
            mask = _mask(own_slots, span.num_blocks * self._block_size, self._window)
        elif self._window is not None and num_rows > self._window:
            mask = _mask(positions[span.start : span.end], num_rows, self._window)
        return PrefillChunk(
            span.start, span.end, span.first, table, mask, first_slot=span.first - left_out
        )


def _positions_of(decodes: list[_Span]) -> Integers:
    return np.array([span.first for span in decodes], np.int64)


def _positions(span: _Span) -> Integers:
    return np.arange(span.first, span.first + span.end - span.start, dtype=np.int64)


def _width(group: list[_Span]) -> int:
    """Return how many blocks the longest table of a group has."""
    return max(span.num_blocks for span in group)


def _mask(own_slots: Tensor, num_slots: int, window: int | None) -> Tensor:
    """[len(own_slots), num_slots] fp32: 0 where a row sees the slot, -inf after it and behind."""
    slots = torch.arange(num_slots, device=own_slots.device)
    mask = torch.zeros((len(own_slots), num_slots), device=own_slots.device)
    mask.masked_fill_(slots > own_slots[:, None], float("-inf"))
    if window is not None:
        mask.masked_fill_(slots <= own_slots[:, None] - window, float("-inf"))
    return mask
