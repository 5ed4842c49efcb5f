"""Saves, lists, deletes and compares baselines of one store, for whoever asks the agent.

It reads and writes on connections of its own: the loop that follows the engines knows nothing of
it. One comparison is worked out at a time, since each takes some tenths of a CPU second.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from agent.baselines.compare import compare
from agent.baselines.comparison import Comparison
from agent.baselines.errors import BaselineBusy, BaselineExists, BaselineRefused
from agent.baselines.name import checked_name
from agent.baselines.side import Side
from agent.duration import duration_text
from agent.reads.baselines import BaselineRow, StoredBaseline
from agent.reads.reads import Reads
from agent.reads.recordings import Stretch, record_window
from agent.store.baselines import BaselineWriter
from agent.store_desk import StoreDesk
from kvpulse.window_recording import WindowRecording

WEEK_SECONDS: Final = 7 * 86_400
DEFAULT_SECONDS: Final = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Sides:
    """What is to be compared.

    Attributes:
        first: A baseline's name; None: the same hours a week before the newest window.
        second: A baseline's name; None: the newest window.
        last_seconds: How long the newest window is.
        engine: Whose; None: the baseline's, or the only one.
    """

    first: str | None = None
    second: str | None = None
    last_seconds: float = DEFAULT_SECONDS
    engine: str | None = None


class BaselineDesk(StoreDesk[BaselineWriter]):
    """See the module; it opens the store when it is first asked. May be used from threads."""

    def __init__(self, store: str, *, wall_clock: Callable[[], int] = time.time_ns) -> None:
        super().__init__(store, BaselineWriter.open)
        self._wall_clock = wall_clock
        self._working = threading.Lock()

    def save(
        self, name: object, *, engine: str | None, last_seconds: float, end_ns: int | None = None
    ) -> StoredBaseline:
        """Save a window of an engine under a name: so many seconds up to `end_ns`, or the newest.

        Raises:
            BaselineRefused, BaselineExists, BaselineBusy, StoreError: The text says what to do.
        """
        its_name = checked_name(name)
        with self._one_at_a_time():
            reads = self._open_reads()
            if its_name in {row.name for row in reads.baselines()}:
                raise BaselineExists(its_name)
            if end_ns is None:
                side = reads.newest_window(engine, last_seconds)
            else:
                side = reads.window_until(engine, last_seconds, end_ns)
            if not side.series.is_counted.any():
                raise BaselineRefused("nothing was recorded in that window: choose another one")
            writer = self._open_writer()
            writer.save(its_name, replace(side, label=its_name), saved_at_ns=self._wall_clock())
            return reads.baseline(its_name)

    def rows(self) -> list[BaselineRow]:
        """Return what is saved, the newest first."""
        return self._open_reads().baselines()

    def show(self, name: str) -> StoredBaseline:
        """Return one baseline."""
        return self._open_reads().baseline(checked_name(name))

    def delete(self, name: str) -> None:
        """Delete one baseline."""
        self._open_writer().delete(checked_name(name))

    def compare(self, sides: Sides) -> Comparison:
        """Hold the second side against the first.

        Raises:
            BaselineError, StoreError: A side cannot be had; the text says what to do.
        """
        with self._one_at_a_time():
            reads = self._open_reads()
            first = None if sides.first is None else self._saved(reads, sides.first)
            engine = sides.engine or (first.engine if first else None)
            if sides.second is not None:
                second = self._saved(reads, sides.second)
            else:
                second = reads.newest_window(engine, sides.last_seconds)
                second = replace(second, label=f"last {duration_text(sides.last_seconds)}")
            if first is None:
                before = reads.newest_window(
                    second.engine, sides.last_seconds, back_seconds=WEEK_SECONDS
                )
                first = replace(before, label="the same hours last week")
            return compare(first, second)

    def recording(self, engine: str, start_ns: int, end_ns: int) -> WindowRecording:
        """Return a window of one run, an hour at most, as a recording to replay.

        Raises:
            BaselineError, StoreError: It cannot be had; the text says why.
        """
        with self._one_at_a_time():
            return record_window(self._store, Stretch(engine, start_ns, end_ns))

    def _saved(self, reads: Reads, name: str) -> Side:
        return reads.baseline(checked_name(name)).side

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._working.acquire(blocking=False):
            raise BaselineBusy
        try:
            yield
        finally:
            self._working.release()
