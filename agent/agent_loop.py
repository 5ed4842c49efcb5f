"""The agent's loop: find streams, let each do a bounded unit of work, show the result, pause."""

import logging
import math
import threading
from contextlib import suppress
from typing import Final

from agent.config import AgentConfig
from agent.errors import AgentError, StoreConflict, StoreUnwritable, StreamHeld
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.reads.models import RunState
from agent.sources.journal import FoundStream, JournalFolder
from agent.store.backoff import Backoff
from agent.store.holder import RENEW_SECONDS
from agent.store.store import Store
from agent.store.stream_id import StreamId
from agent.stream_follower import Clocks, Step, StreamFollower
from kvpulse.errors import JournalError, UnreadableSegmentError
from kvpulse.stream_values import WriterState

LOGGER: Final = logging.getLogger(__name__)
STORE: Final = "store"
JOURNAL: Final = "journal"
FAR_BEHIND_RECORDS: Final = 1_000_000
CONFLICT_PAUSE_SECONDS: Final = 10.0
FAULT_PAUSE_SECONDS: Final = 60.0
PROGRESS_SECONDS: Final = 5.0
HELD_LOOK_SECONDS: Final = 0.25


class AgentLoop:
    """Follows every stream of one journal folder into one store. For one thread."""

    def __init__(
        self, config: AgentConfig, store: Store, view: LiveView, *, clocks: Clocks | None = None
    ) -> None:
        self._config = config
        self._store = store
        self._view = view
        self._clocks = clocks or Clocks()
        self._folder = JournalFolder(config.journal)
        self._followers: dict[StreamId, StreamFollower] = {}
        self._not_before: dict[StreamId, float] = {}  # streams left alone until then
        self._held: dict[StreamId, StreamHeld] = {}  # streams that another agent writes
        self._backoff = Backoff()
        self._next_scan = 0.0
        self._next_renewal = 0.0
        self._next_progress = 0.0
        self.num_events = 0
        self.conflicts: list[str] = []
        self.failures: dict[str, str] = {}  # what cannot be read now, and why
        self._log_limit = OncePerHour(self._clocks.seconds)
        self.store_error: str | None = None

    def run(self, stop: threading.Event) -> None:
        """Follow all streams until `stop` is set; what was read by then is stored."""
        try:
            while not stop.is_set():
                due = self._clocks.seconds() + self._config.commit_seconds
                if not self.turn():
                    stop.wait(max(0.0, due - self._clocks.seconds()))
            self.turn()
            self._settle()
        finally:
            self.close()

    def drain(self, stop: threading.Event) -> None:
        """Read every stream to where it stands now, and store it."""
        try:
            self._backoff.worked()  # asked for now, so no pause is owed
            while self.turn() and not stop.is_set():
                pass
            # A holder that neither shows a sign of life nor is known to be dead is waited for.
            while any(not held.is_proven for held in self._held.values()) and not stop.is_set():
                stop.wait(HELD_LOOK_SECONDS)
                while self.turn(scan=True) and not stop.is_set():
                    pass
            self.turn(scan=True)  # writers seen dead just now are marked as ended
            for follower in self._followers.values():
                self._show(follower, RunState.LIVE)
            self.conflicts += map(str, self._held.values())
            self._settle()
        finally:
            self.close()

    def turn(self, *, scan: bool = False) -> bool:
        """Let every stream do one unit of work; return whether one of them has more to do.

        While the store takes no writes, it does nothing until the next attempt is due: each stream
        keeps the one commit it holds, and its journal the rest.
        """
        now = self._clocks.seconds()
        more = False
        if self._backoff.is_due(now):
            looks = scan or now >= self._next_scan
            if looks:
                self._next_scan = now + self._config.rescan_seconds
                self._find_streams()
            for follower in list(self._followers.values()):
                if self._backoff.is_due(now):  # the one before may just have failed
                    more |= self._step(follower, looks=looks)
            self._renew_leases(now)
        self._view.note_loop(self._clocks.wall_ns())
        return more

    def close(self) -> None:
        """Let go of every stream's files, and of its lease where the store takes that."""
        for follower in self._followers.values():
            follower.close()
        try:
            for follower in self._followers.values():
                if self.store_error is None:
                    follower.release()
        except StoreUnwritable as error:
            LOGGER.warning("leases pass on when they have been silent: %s", error)

    def _settle(self) -> None:
        """Store what is held back, where the store lets us; else the next agent makes up for it."""
        for follower in self._followers.values():
            try:
                follower.settle()
            except StoreUnwritable as error:
                LOGGER.warning("the newest rollups wait: %s", error)
                return  # nor will it take those of the others
            except AgentError as error:
                LOGGER.warning("%s: the newest rollups wait: %s", follower.stream, error)

    def _renew_leases(self, now: float) -> None:
        if not self._followers or now < self._next_renewal or not self._backoff.is_due(now):
            return
        self._next_renewal = now + RENEW_SECONDS
        try:
            self._store.renew(self._followers)
            self._store_works()  # nobody holds anything back: all had their step just now
        except StoreUnwritable as error:
            self._store_failed(error)

    def _find_streams(self) -> None:
        now = self._clocks.seconds()
        streams = self._folder.streams()
        self._note_folder()
        for found in streams:
            is_due = now >= self._not_before.get(found.stream, 0.0)
            works = self._backoff.is_due(now)
            if is_due and works and found.stream not in self._followers:
                self._follow(found)

    def _note_folder(self) -> None:
        problem = self._folder.problem
        if problem is not None:
            self._note_failure(JOURNAL, problem)
        elif self.failures.pop(JOURNAL, None) is not None:
            self._view.clear_error(JOURNAL)

    def _follow(self, found: FoundStream) -> None:
        try:
            follower = StreamFollower(found, self._store, self._clocks)
        except StoreUnwritable as error:
            self._store_failed(error)
            return  # tried again at the next scan
        except StreamHeld as error:
            self._leave_to(found.stream, error)
            return  # the same
        except (AgentError, JournalError) as error:
            self._give_up_for(found.stream, error)
            return
        self._held.pop(found.stream, None)
        if follower.has_ended:
            self._not_before[found.stream] = math.inf
            return
        LOGGER.info("following %s", found.stream)
        self._view.clear_error(str(found.stream))
        self.failures.pop(str(found.stream), None)
        self._followers[found.stream] = follower

    def _step(self, follower: StreamFollower, *, looks: bool) -> bool:
        try:
            # Asked before reading: whatever a writer that is gone left behind is then read below.
            writer = follower.look().writer if looks else WriterState.ALIVE
            step = follower.step(self._config.commit_events)
            self._account(follower, step)
            if writer is not WriterState.ALIVE and not step.may_have_more:
                self._end(follower, writer)
        except StoreConflict as error:
            # The other agent may be a short one: look again later, from where it got to.
            self.conflicts.append(str(error))
            self._give_up(follower.stream, str(error), pause_seconds=CONFLICT_PAUSE_SECONDS)
            return False
        except StoreUnwritable as error:
            self._store_failed(error)
            return False
        except (AgentError, JournalError) as error:
            self._give_up_for(follower.stream, error)
            return False
        except Exception as error:
            LOGGER.error("following %s failed", follower.stream, exc_info=error)
            why = f"unexpected {type(error).__name__}: {error}; going on from the last commit"
            self._give_up(follower.stream, why, pause_seconds=FAULT_PAUSE_SECONDS)
            return False
        return step.may_have_more

    def _account(self, follower: StreamFollower, step: Step) -> None:
        self.num_events += step.num_events
        pace = follower.show_pace
        if step.committed:
            self._store_works()
            self._view.note_commit(follower.committed_at_ns, seconds=step.commit_seconds)
            pace.note_commit()
            self._say_progress(follower)
        if pace.is_due(self._clocks.seconds(), caught_up=not step.may_have_more):
            self._show(follower, RunState.LIVE)

    def _end(self, follower: StreamFollower, writer: WriterState) -> None:
        follower.end(writer)
        self._store_works()
        LOGGER.info("%s: the writer is %s and everything is read", follower.stream, writer.value)
        state = RunState.FINISHED if writer is WriterState.FINISHED else RunState.DEAD
        self._show(follower, state)
        del self._followers[follower.stream]
        self._not_before[follower.stream] = math.inf

    def _give_up_for(self, stream: StreamId, error: Exception) -> None:
        # Permissions get mended; what is no journal of ours stays so.
        can_change = isinstance(error, UnreadableSegmentError)
        self._note_failure(str(stream), str(error))
        pause_seconds = FAULT_PAUSE_SECONDS if can_change else math.inf
        self._give_up(stream, str(error), pause_seconds=pause_seconds)

    def _note_failure(self, subject: str, why: str) -> None:
        self.failures[subject] = why
        self._view.note_error(subject, why, self._clocks.wall_ns())

    def _give_up(self, stream: StreamId, why: str, *, pause_seconds: float) -> None:
        if self._log_limit.is_due(f"{stream}: {why}"):
            LOGGER.error("no longer following %s: %s", stream, why)
        self._view.note_error(str(stream), why, self._clocks.wall_ns())
        self._not_before[stream] = self._clocks.seconds() + pause_seconds
        follower = self._followers.pop(stream, None)
        if follower is not None:
            follower.close()
            with suppress(StoreUnwritable):  # then it passes on by falling silent
                follower.release()

    def _leave_to(self, stream: StreamId, error: StreamHeld) -> None:
        before = self._held.get(stream)
        if before is None or before.holder != error.holder:
            LOGGER.warning("%s", error)
        self._held[stream] = error
        self._view.note_error(str(stream), str(error), self._clocks.wall_ns())

    def _store_failed(self, error: StoreUnwritable) -> None:
        pause = self._backoff.failed(self._clocks.seconds())
        if self.store_error is None:
            LOGGER.error("%s; trying again", error)
        LOGGER.debug("attempt %d failed; next in %.2f s", self._backoff.failures, pause)
        self.store_error = str(error)
        self._view.note_store(writable=False)
        self._view.note_error(STORE, str(error), self._clocks.wall_ns())

    def _store_works(self) -> None:
        self._backoff.worked()
        if self.store_error is not None:
            LOGGER.info("the store takes writes again")
            self.store_error = None
            self._view.note_store(writable=True)
            self._view.clear_error(STORE)

    def _show(self, follower: StreamFollower, state: RunState) -> None:
        follower.show_pace.note_shown(self._clocks.seconds())
        engine = follower.live(state)
        if engine is None:
            return
        shown = self._view.snapshot().engines.get(engine.engine)
        is_older = shown is not None and shown.run_key != engine.run_key
        if is_older and shown is not None and shown.started_at_ns > engine.started_at_ns:
            return  # the end of a former run, while the next one is already there
        self._view.publish(engine)

    def _say_progress(self, follower: StreamFollower) -> None:
        now = self._clocks.seconds()
        if follower.behind_records < FAR_BEHIND_RECORDS or now < self._next_progress:
            return
        self._next_progress = now + PROGRESS_SECONDS
        LOGGER.info(
            "%s: catching up, %.1f M records behind, %.1f M events stored so far",
            follower.stream,
            follower.behind_records / 1e6,
            self.num_events / 1e6,
        )
