"""Tell what happens to incidents from a thread of its own; whoever reports a change never waits."""

import logging
import queue
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from agent.errors import AgentError
from agent.log_limit import OncePerHour
from agent.store.backoff import Backoff
from agent.triage.incidents import IncidentChange
from agent.webhook.endpoint import Answer, Endpoint
from agent.webhook.message import TYPES, Message, message_of
from agent.webhook.outbox import NoOutbox, Outbox
from agent.webhook.outcome import Outcome

LOGGER: Final = logging.getLogger(__name__)
MOST_WAITING: Final = 256
MOST_ATTEMPTS: Final = 10
FIRST_PAUSE_SECONDS: Final = 1.0
MOST_PAUSE_SECONDS: Final = 60.0  # ten attempts take about four minutes
CATCH_UP_SECONDS: Final = 300.0  # of quiet, and what failed or was dropped is tried again
STOP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Time as the sender sees it; a test moves it by hand.

    Attributes:
        wall_seconds: Since 1970.
        pause: Waits so many seconds, or until the event is set; returns whether it is.
        rng: What pauses are drawn from.
    """

    wall_seconds: Callable[[], float] = time.time
    pause: Callable[[threading.Event, float], bool] = threading.Event.wait
    rng: random.Random = field(default_factory=random.Random)


class WebhookSender:
    """Takes each `IncidentChange` and tells the receiver, in order, for as long as the block lasts.

    One message is tried ten times, with growing pauses. While that goes on others wait their turn:
    there is one receiver, and what it cannot take now it could not take for the next one either.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        show: Callable[[Mapping[Outcome, int]], None],
        *,
        outbox: Outbox | None = None,
        pace: Pace | None = None,
        log_limit: OncePerHour | None = None,
    ) -> None:
        """Prepare; nothing is sent before the block is entered.

        Args:
            outbox: Knows what former agents did not get told; None: nobody does.
            show: Is told how many messages ended in which way, all outcomes, after each.
        """
        self._endpoint = endpoint
        self._show = show
        self._outbox = outbox or NoOutbox()
        self._pace = pace or Pace()
        self._log_limit = log_limit or OncePerHour(time.monotonic)
        self._waiting: queue.Queue[IncidentChange | None] = queue.Queue(MOST_WAITING)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        # Stored before it is reported, a change may be found in the store and in the queue as well.
        self._done: deque[str] = deque(maxlen=MOST_WAITING)
        self._counts: Counter[Outcome] = Counter()
        self._thread = threading.Thread(target=self._run, name="kvpulse-webhook", daemon=True)

    def __enter__(self) -> Self:
        """Begin to send."""
        self._show(self._all_counts())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Try once what still waits, without pauses; one that hangs is not waited for."""
        self._stop.set()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            LOGGER.debug("the queue is full: its end is found without a mark")
        self._thread.join(STOP_SECONDS)

    def __call__(self, change: IncidentChange) -> None:
        """Take note of a change: at once, and whatever becomes of it."""
        if change.change not in TYPES:
            return
        try:
            self._waiting.put_nowait(change)
        except queue.Full:
            self._say("dropped", "%d messages wait already: dropping more", MOST_WAITING)
            self._count(Outcome.DROPPED)

    def _run(self) -> None:
        self._catch_up()
        while not (self._stop.is_set() and self._waiting.empty()):
            try:
                change = self._waiting.get(timeout=CATCH_UP_SECONDS)
            except queue.Empty:
                self._catch_up()
                continue
            if change is not None:
                self._tell(change)
        self._outbox.close()

    def _catch_up(self) -> None:
        """Tell what was not told before, until the receiver fails again."""
        try:
            for change in self._outbox.untold():
                if self._stop.is_set() or self._tell(change) is Outcome.FAILED:
                    return
        except AgentError as error:
            self._say(type(error).__name__, "webhook: what is to be told is not known: %s", error)

    def _tell(self, change: IncidentChange) -> Outcome:
        """Tell of a change, and note that this is done; what is done already is not told again."""
        try:
            message = message_of(change)
            assert message is not None  # others are not let in
            if message.id in self._done:
                return Outcome.DELIVERED
            outcome = self._deliver(message)
        except Exception as error:
            LOGGER.error("the webhook failed by itself", exc_info=error)
            outcome = Outcome.FAILED
        else:
            if outcome is not Outcome.FAILED:
                self._note(change, message)
        self._count(outcome)
        return outcome

    def _note(self, change: IncidentChange, message: Message) -> None:
        self._done.append(message.id)
        try:
            self._outbox.note(change)
        except AgentError as error:
            self._say(type(error).__name__, "webhook: it may be told once more: %s", error)

    def _deliver(self, message: Message) -> Outcome:
        backoff = Backoff(
            self._pace.rng, first_seconds=FIRST_PAUSE_SECONDS, most_seconds=MOST_PAUSE_SECONDS
        )
        while True:
            now = self._pace.wall_seconds()
            reply = self._endpoint.post(message, timestamp=int(now))
            if reply.answer is Answer.TAKEN:
                return Outcome.DELIVERED
            self._say(reply.why, "webhook %s: %s", self._endpoint.label, reply.why)
            if reply.answer is Answer.REFUSED:
                return Outcome.REFUSED
            seconds = backoff.failed(now)
            is_last = backoff.failures >= MOST_ATTEMPTS
            if is_last or self._pace.pause(self._stop, seconds):
                return Outcome.FAILED

    def _count(self, outcome: Outcome) -> None:
        with self._lock:
            self._counts[outcome] += 1
            self._show(self._all_counts())

    def _all_counts(self) -> dict[Outcome, int]:
        return {outcome: self._counts[outcome] for outcome in Outcome}

    def _say(self, cause: str, text: str, *values: object) -> None:
        if self._log_limit.is_due(cause):
            LOGGER.warning(text, *values)
