"""Gathers stretches of the journal into chunks of a good size."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from agent.chunks.chunk import Stretch, encode_chunk
from agent.ledger.delta import Chunk
from agent.ledger.event_columns import lane_words_of
from kvpulse.stream_values import event_counts

CHUNK_EVENTS: Final = 65_536


@dataclass(slots=True)
class ChunkBuilder:
    """Neighbouring stretches become one chunk; a gap lies between two."""

    _stretches: list[Stretch] = field(default_factory=list)
    _num_events: int = 0
    _chunks: list[Chunk] = field(default_factory=list)

    def add(self, stretch: Stretch) -> None:
        """Add a stretch that follows the last one without a gap."""
        self._stretches.append(stretch)
        self._num_events += int(event_counts(stretch.records).sum())
        if self._num_events >= CHUNK_EVENTS:
            self.cut()

    def cut(self) -> None:
        """End the chunk here."""
        if self._stretches:
            self._chunks.append(encode_chunk(_joined(self._stretches), self._num_events))
        self._stretches, self._num_events = [], 0

    def take(self) -> tuple[Chunk, ...]:
        """Return the chunks since the last take."""
        self.cut()
        chunks, self._chunks = tuple(self._chunks), []
        return chunks


def _joined(stretches: list[Stretch]) -> Stretch:
    """Lay stretches one after the other, their lane words too."""
    if len(stretches) == 1:
        return stretches[0]
    parts, lane_end = [], 0
    for stretch in stretches:
        records = stretch.records.copy()
        in_lane = lane_words_of(records["kind"], records["n"].astype(np.int64)) > 0
        places = records["first"].astype(np.int64) + (lane_end - stretch.lane_base)
        records["first"] = np.where(in_lane, places & 0xFFFF_FFFF, records["first"])
        lane_end += len(stretch.lane)
        parts.append(records)
    lane = np.concatenate([stretch.lane for stretch in stretches])
    return replace(stretches[0], records=np.concatenate(parts), lane=lane, lane_base=0)
