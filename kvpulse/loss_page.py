"""The page that says, at any moment, what a stream could not write.

Events that find no segment are counted here, in shared memory that was reserved when the stream was
opened, so that a reader of a dead writer still knows the loss exactly. At a clean end the writer
also leaves the total of every kind, which settles what damage hid in the last segment.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from kvpulse.events import FORMAT_VERSION, MAX_KINDS
from kvpulse.segment import COUNTS, PAGE_BYTES, ProcessIdentity, map_reserved

LOSS_FILE: Final = "loss"
LOSS_MAGIC: Final = b"KVPULSEL"
LOSS_FIXED: Final = Struct("<8sIIQQQ")  # magic, version, page bytes, pid, pid namespace, start

LOSS_STATE_OFFSET: Final = 64
LOSS_RECORDS_OFFSET: Final = 128
LOSS_EMITTED_OFFSET: Final = 256
LOSS_NOT_WRITTEN_OFFSET: Final = 768


class LossPage:
    """The writer's side: one page, mapped."""

    __slots__ = ("_map", "_words")

    def __init__(self, directory: Path, process: ProcessIdentity) -> None:
        self._map = map_reserved(directory / LOSS_FILE, PAGE_BYTES)
        LOSS_FIXED.pack_into(self._map, 0, LOSS_MAGIC, FORMAT_VERSION, PAGE_BYTES, *process)
        self._words = memoryview(self._map).cast("Q")

    def add(self, kind: int, not_written: int, records: int) -> None:
        """State the new total of `kind` and of records that were not written."""
        words = self._words
        words[LOSS_NOT_WRITTEN_OFFSET // 8 + kind] = not_written
        words[LOSS_RECORDS_OFFSET // 8] = records

    def fill(self, not_written: list[int], records: int) -> None:
        """State every total; used when a stream got its page late."""
        COUNTS.pack_into(self._map, LOSS_NOT_WRITTEN_OFFSET, *not_written)
        self._words[LOSS_RECORDS_OFFSET // 8] = records

    def finish(self, state: int, emitted: Sequence[int]) -> None:
        """Leave the final totals, then the state that makes them valid."""
        COUNTS.pack_into(self._map, LOSS_EMITTED_OFFSET, *emitted)
        self._words[LOSS_STATE_OFFSET // 8] = state

    def unmap(self) -> None:
        """Let go of the mapping."""
        self._words.release()
        self._map.close()


@dataclass(frozen=True, slots=True)
class LossTotals:
    """What a reader finds on the page."""

    state: int  # 0 while the writer runs or after it died
    records: int
    emitted: tuple[int, ...]  # valid when state is not 0
    not_written: tuple[int, ...]
    process: ProcessIdentity


def read_loss_page(directory: Path) -> LossTotals | None:
    """Return the page's totals, or None where there is no page that can be trusted."""
    try:
        descriptor = os.open(directory / LOSS_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        page = os.pread(descriptor, PAGE_BYTES, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(page) < LOSS_NOT_WRITTEN_OFFSET + COUNTS.size:
        return None
    magic, version, size, *process = LOSS_FIXED.unpack_from(page, 0)
    if magic != LOSS_MAGIC or version != FORMAT_VERSION or size != PAGE_BYTES:
        return None
    words = memoryview(page).cast("Q")
    return LossTotals(
        state=words[LOSS_STATE_OFFSET // 8],
        records=words[LOSS_RECORDS_OFFSET // 8],
        emitted=COUNTS.unpack_from(page, LOSS_EMITTED_OFFSET),
        not_written=COUNTS.unpack_from(page, LOSS_NOT_WRITTEN_OFFSET),
        process=ProcessIdentity(*process),
    )


EMPTY_COUNTS: Final = (0,) * MAX_KINDS
