"""What names a stream in a store, and how far it was read."""

from dataclasses import dataclass

from kvpulse.stream_values import Position


@dataclass(frozen=True, slots=True)
class StreamId:
    """Which run of which engine a stream belongs to; together unique in a store."""

    engine: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.engine}/{self.run_id}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the stream was read for a commit."""

    position: Position
    behind_records: int  # committed by the writer, not yet read
    committed_at_ns: int  # the agent's wall clock
