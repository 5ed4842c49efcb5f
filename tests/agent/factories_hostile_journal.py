"""What an agent made of a journal in which something is wrong."""

from pathlib import Path
from typing import NamedTuple

from agent.reads.reads import open_reads
from kvpulse.command import main as kvpulse
from kvpulse.events import Kind
from kvpulse.recorder import Recorder


class Stored(NamedTuple):
    stored: int
    lost: int
    gaps: list[str]


def follow(journal: Path, store: str) -> int:
    """Let an agent of its own store what is there."""
    return kvpulse(["agent", "--once", "--journal", str(journal), "--store", store])


def stored_of(store: str, engine: str = "good") -> Stored:
    reads = open_reads(store)
    (row,) = [row for row in reads.engines() if row.engine == engine]
    gaps = [gap.why for gap in reads.gaps(row.run_key)]
    reads.close()
    return Stored(row.events_stored, row.events_lost, gaps)


def emitted(recorder: Recorder) -> int:
    return sum(events for kind, events in recorder.emitted().items() if kind in Kind)
