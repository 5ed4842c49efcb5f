"""Small chunks of a quiet stream become one of a good size: fewer bytes, faster maps.

A few commits a second make chunks of a few hundred events; replaying a minute of them
for a block map costs more in calls than in events. They are joined within a later commit's
transaction; what is still small then waits for others of its kind, so that a day of an idle engine
ends in a dozen chunks. A join never reaches across a snapshot, so that replay from any snapshot
begins at a chunk.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from agent.chunks.builder import ChunkBuilder
from agent.chunks.chunk import decode_chunk
from agent.ledger.delta import Chunk, LedgerDelta

GOOD_EVENTS: Final = 16_384
SMALL_EVENTS: Final = 8_192  # chunks from this size on are left as they are
FAN_OUT: Final = (32, 32, 16)  # so many chunks of a level become one of the next

# Chunks that wait for others: as they came, joined once, joined twice; in order of time from the
# last level to the first.
Waiting: TypeAlias = tuple[tuple[Chunk, ...], ...]
NO_CHUNKS: Final[Waiting] = ((), (), ())


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What one commit does about small chunks, and which it leaves for a later one."""

    joined: tuple[Chunk, ...] = ()  # the chunks to take out
    merged: Chunk | None = None  # and what to put in
    waiting: Waiting = NO_CHUNKS

    @property
    def num_chunks(self) -> int:
        """How many chunks the store gains, 0 or fewer."""
        return (self.merged is not None) - len(self.joined)

    @property
    def num_bytes(self) -> int:
        """How many bytes the store gains, mostly fewer than 0."""
        gained = len(self.merged.blob) if self.merged is not None else 0
        return gained - sum(len(chunk.blob) for chunk in self.joined)


def plan_merge(waiting: Waiting, delta: LedgerDelta) -> MergePlan:
    """Say what to join now that a delta's chunks are stored behind those waiting. Pure."""
    levels = [list(level) for level in waiting]
    for chunk in delta.chunks:
        last = next((level[-1] for level in levels if level), None)
        is_next = last is None or chunk.seq0 == last.seq0 + last.num_records
        if not is_next or chunk.num_events >= SMALL_EVENTS:
            levels = [[], [], []]
        if chunk.num_events < SMALL_EVENTS:
            levels[0].append(chunk)
    full = _full_levels(levels)
    num_events = sum(chunk.num_events for level in levels for chunk in level)
    if delta.snapshot is not None or num_events >= GOOD_EVENTS:
        full = len(levels)
    if not full:
        return MergePlan(waiting=tuple(map(tuple, levels)))
    run = [chunk for level in reversed(levels[:full]) for chunk in level]
    left: list[list[Chunk]] = [[] for _ in levels[:full]] + levels[full:]
    if len(run) < 2:
        return MergePlan(waiting=tuple(map(tuple, left)))
    merged = join_chunks(run)
    if full < len(levels):
        left[full] = [*left[full], merged]
    return MergePlan(joined=tuple(run), merged=merged, waiting=tuple(map(tuple, left)))


def _full_levels(levels: list[list[Chunk]]) -> int:
    """Return how many levels, from the first on, are to be joined into one chunk."""
    for number, (level, most) in enumerate(zip(levels, FAN_OUT, strict=True)):
        if len(level) + (number > 0) < most:
            return number
    return len(levels)


def join_chunks(chunks: list[Chunk]) -> Chunk:
    """Return neighbouring chunks as one."""
    builder = ChunkBuilder()
    for chunk in chunks:
        builder.add(decode_chunk(chunk.blob))
    (joined,) = builder.take()
    return joined
