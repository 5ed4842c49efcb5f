"""Small chunks of a quiet stream become one of a good size: fewer bytes, faster maps.

A commit each quarter of a second makes chunks of a few hundred events; replaying a minute of them
for a block map costs more in calls than in events. They are joined within a later commit's
transaction. A join never reaches across a snapshot, so that replay from any snapshot begins at a
chunk.
"""

from dataclasses import dataclass
from typing import Final

from agent.chunk import decode_chunk
from agent.chunk_builder import ChunkBuilder
from agent.ledger_delta import Chunk, LedgerDelta

GOOD_EVENTS: Final = 16_384
SMALL_EVENTS: Final = 8_192  # chunks from this size on are left as they are
MOST_CHUNKS: Final = 32


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What one commit does about small chunks, and which it leaves for a later one."""

    joined: tuple[Chunk, ...] = ()  # the chunks to take out
    merged: Chunk | None = None  # and what to put in
    waiting: tuple[Chunk, ...] = ()

    @property
    def num_chunks(self) -> int:
        """How many chunks the store gains, 0 or fewer."""
        return (self.merged is not None) - len(self.joined)

    @property
    def num_bytes(self) -> int:
        """How many bytes the store gains, mostly fewer than 0."""
        gained = len(self.merged.blob) if self.merged is not None else 0
        return gained - sum(len(chunk.blob) for chunk in self.joined)


def plan_merge(waiting: tuple[Chunk, ...], delta: LedgerDelta) -> MergePlan:
    """Say what to join now that a delta's chunks are stored behind those waiting. Pure."""
    run = list(waiting)
    for chunk in delta.chunks:
        if run and chunk.seq0 != run[-1].seq0 + run[-1].num_records:
            run = []  # something is missing between the two
        run = [*run, chunk] if chunk.num_events < SMALL_EVENTS else []
    num_events = sum(chunk.num_events for chunk in run)
    is_due = num_events >= GOOD_EVENTS or len(run) >= MOST_CHUNKS
    if delta.snapshot is None and not is_due:
        return MergePlan(waiting=tuple(run))
    if len(run) < 2:
        return MergePlan()
    return MergePlan(joined=tuple(run), merged=join_chunks(run))


def join_chunks(chunks: list[Chunk]) -> Chunk:
    """Return neighbouring chunks as one."""
    builder = ChunkBuilder()
    for chunk in chunks:
        builder.add(decode_chunk(chunk.blob))
    (joined,) = builder.take()
    return joined
