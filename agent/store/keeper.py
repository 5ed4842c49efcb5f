"""Keeps a store within its budget beside the agent's loop, on a thread and connections of its own.

Pruning in small transactions never makes a commit wait for long. On SQLite it also empties the
write-ahead log: readers that overlap without end keep SQLite from doing so by itself, and the log
would grow for ever.
"""

import logging
import threading
import time
from typing import Final

from agent.byte_size import bytes_text
from agent.errors import StoreError
from agent.live_view import LiveView
from agent.store.connection import StoreAddress, open_for_writing
from agent.store.prune import Pruned, Pruner
from agent.store.space import checkpoint, wal_bytes

LOGGER: Final = logging.getLogger(__name__)
RETENTION: Final = "retention"
LOOK_SECONDS: Final = 1.0
TRY_WAL_BYTES: Final = 16 << 20  # from here on it is emptied when nobody is in the way
MOST_WAL_BYTES: Final = 128 << 20  # from here on writers and readers wait for that
WAIT_SECONDS: Final = 4.5  # in all, below what a commit waits for the database
PAUSE_SECONDS: Final = 30.0  # after waiting in vain


class StoreKeeper:
    """One store's retention; `start` it beside the loop, `stop` it before the process ends."""

    def __init__(
        self, address: StoreAddress, view: LiveView, *, budget_bytes: int, prune_seconds: float
    ) -> None:
        self._address = address
        self._view = view
        self._budget_bytes = budget_bytes
        self._prune_seconds = prune_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store keeper", daemon=True)
        self._not_before = 0.0
        self._said: str | None = None

    def start(self) -> None:
        """Begin looking after the store."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the transaction at hand and end."""
        self._stop.set()
        self._thread.join()

    def prune_once(self) -> Pruned | None:
        """Bring the store under its budget now; None where the database refused."""
        try:
            pruner = Pruner(self._address)
            try:
                done = pruner.prune(self._budget_bytes)
            finally:
                pruner.close()
        except StoreError as error:
            self._say(str(error))
            return None
        self._tell(done)
        return done

    def _run(self) -> None:
        next_prune = 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            try:
                if now >= next_prune:
                    next_prune = now + self._prune_seconds
                    self.prune_once()
                self._watch_log(now)
            except Exception as error:
                LOGGER.error("retention failed", exc_info=error)
                self._say(f"unexpected {type(error).__name__}: {error}")
            self._stop.wait(min(LOOK_SECONDS, self._prune_seconds))

    def _watch_log(self, now: float) -> None:
        path = self._address.path
        size = 0 if path is None else wal_bytes(path)
        if size < TRY_WAL_BYTES:
            return
        must = size >= MOST_WAL_BYTES and now >= self._not_before
        try:
            engine = open_for_writing(self._address)
            try:
                done = checkpoint(engine, wait_seconds=WAIT_SECONDS if must else 0.0)
            finally:
                engine.dispose()
        except StoreError as error:
            self._say(str(error))
            return
        if must and not done:
            self._not_before = now + PAUSE_SECONDS
            LOGGER.warning(
                "the write-ahead log of %s has %s: somebody reads it for longer than %.1f s",
                self._address.label,
                bytes_text(size),
                WAIT_SECONDS,
            )

    def _tell(self, done: Pruned) -> None:
        if done.deleted:
            LOGGER.info("retention: %s", pruned_text(done))
        if done.is_within or not done.is_ours:
            self._said = None
            self._view.clear_error(RETENTION)
        else:
            self._say(
                f"the store takes {bytes_text(done.after_bytes)} of the"
                f" {bytes_text(done.budget_bytes)} it may have, and what is left is needed to go"
                " on: raise store_budget"
            )

    def _say(self, what: str) -> None:
        if what != self._said:
            LOGGER.warning("retention: %s", what)
        self._said = what
        self._view.note_error(RETENTION, what, time.time_ns())


def pruned_text(done: Pruned) -> str:
    """Say in words what pruning came to."""
    if not done.is_ours:
        return "another process prunes this store just now"
    sizes = f"{bytes_text(done.after_bytes)} of {bytes_text(done.budget_bytes)}"
    if not done.deleted:
        return f"nothing to delete, {sizes} used"
    gone = ", ".join(f"{number} {kind.value}" for kind, number in done.deleted.items())
    return f"{bytes_text(done.before_bytes)} before, {sizes} used now; deleted {gone}"
