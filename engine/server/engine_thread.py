"""Run an engine on a thread of its own and carry requests and tokens between it and asyncio.

The engine and its Recorder belong to that one thread, which builds them too. Whoever wants
something of them puts an act into the inbox; acts run between two steps, in the order in which they
came, so that a cancel takes effect within one step. A step's tokens go back to the event loop in
one call.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

from engine.admission import Rejection
from engine.engine_loop import Engine
from engine.errors import EngineError
from engine.request import Request
from engine.server.live_requests import LiveRequest, LiveRequests, Refused, RequestEvent
from engine.server.request_times import RequestTimes
from engine.server.retry_after import RetryAfter
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason

IDLE_SECONDS: Final = 0.25  # an idle engine still states a heartbeat and an audit each second
STUCK_SECONDS: Final = 0.01  # between passes that ran nothing although something waits

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class EngineStoppedError(EngineError):
    """The engine's thread has ended, so that nothing can be asked of it any more."""

    def __init__(self) -> None:
        super().__init__("the engine has stopped; the server log says why")


class EngineThread:
    """Owns the thread that owns the engine. Its public methods belong to the event loop."""

    def __init__(
        self,
        build: Callable[[], Engine],
        *,
        now_ns: Callable[[], int],
        keep_pace: Callable[[], None] | None = None,
        retry_after: RetryAfter,
        on_failure: Callable[[], None],
    ) -> None:
        """Prepare a thread; nothing runs before `start`.

        Args:
            build: Builds engine and Recorder, on the thread that will own them.
            now_ns: The engine's clock.
            keep_pace: Run before each step and act: lets a virtual clock catch up with the wall.
            retry_after: Told of every end; says when a refused client may come back.
            on_failure: Run on the event loop should the engine raise.
        """
        self._build = build
        self._now_ns = now_ns
        self._keep_pace = keep_pace
        self._retry_after = retry_after
        self._on_failure = on_failure
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._live = LiveRequests()  # touched by the engine's thread alone
        self._pending: set[asyncio.Future[Any]] = set()  # touched by the event loop alone
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._num_output_tokens = 0
        self._stopping = False
        self._stopped = False

    @property
    def alive(self) -> bool:
        """Whether the engine can still be asked for anything."""
        return self._thread.is_alive() and not self._stopped

    async def start(self) -> None:
        """Build the engine and start stepping; raises what the building raises."""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        await self._ready

    async def submit(
        self, request: Request, live: LiveRequest, times: RequestTimes
    ) -> Refused | None:
        """Hand a request to the engine; None means that it was taken and that tokens will come."""

        def act() -> Refused | None:
            admission = self._engine.submit(times.apply(request, engine_ns=self._now_ns()))
            live.root = admission.seq_id
            if admission.rejection is None:
                self._live.add(live, admission.seq_id)
                return None
            return self._refused(admission.rejection)

        return await self.ask(act)

    def cancel(self, live: LiveRequest) -> None:
        """End a request that nobody reads any more, before the next step."""
        self._inbox.put(lambda: self._cancel(live))

    def stop(self, live: LiveRequest, seq_id: int) -> None:
        """End one sample of a request, which has said a stop string, before the next step."""
        self._inbox.put(lambda: self._stop(live, seq_id))

    async def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Answer a question on the engine's thread, between two steps."""
        if not self.alive:
            raise EngineStoppedError
        answer: asyncio.Future[_Answer] = self._loop.create_future()
        self._pending.add(answer)
        answer.add_done_callback(self._pending.discard)
        self._inbox.put(lambda: self._on_loop(_give, answer, question()))
        return await answer

    def _abandon_questions(self) -> None:
        """Say that there will be no answer, once the thread has ended."""
        for answer in list(self._pending):
            _give_error(answer, EngineStoppedError())

    async def accounts(self) -> dict[str, object]:
        """Return the engine's accounts, with how many sequences run and wait just now."""

        def question() -> dict[str, object]:
            engine = self._engine
            return {
                **engine.accounts().as_json(),
                "total_blocks": engine.config.total_blocks,
                "running": engine.num_running,
                "waiting": engine.num_waiting,
                "output_tokens": self._num_output_tokens,
            }

        return await self.ask(question)

    async def sharing(self) -> dict[str, object]:
        """Return what sharing blocks gave so far, and what it cost."""
        return await self.ask(lambda: self._engine.sharing_report().as_json())

    async def preemptions(self) -> list[dict[str, object]]:
        """Return who gave way lately, for whom and why; the newest last."""
        return await self.ask(lambda: [each.as_json() for each in self._engine.latest_preemptions])

    async def close(self, *, drain_seconds: float) -> None:
        """Refuse what comes, let live sequences end for a while, cancel the rest, stop."""
        with contextlib.suppress(EngineStoppedError):  # it may fail, or have failed, by itself
            await self.ask(self._engine.begin_drain)
            await self._until_idle(drain_seconds)
            await self.ask(self._finish)
        await asyncio.to_thread(self._thread.join)

    async def _until_idle(self, seconds: float) -> None:
        ends_at = self._loop.time() + seconds
        while self._loop.time() < ends_at and await self.ask(lambda: self._engine.has_work):
            await asyncio.sleep(0.02)

    # What follows runs on the engine's thread.

    def _run(self) -> None:
        try:
            self._engine = self._build()
        except BaseException as error:  # noqa: BLE001 - handed to whoever awaits `start`
            self._on_loop(_give_error, self._ready, error)
            return
        self._on_loop(_give, self._ready, None)
        try:
            self._work()
        except BaseException:  # noqa: BLE001 - said aloud, told to every client, ends the process
            _log.exception("the engine failed; the server ends")
            self._fail()
            self._on_loop(self._on_failure)
        finally:
            self._stopped = True
            self._on_loop(self._abandon_questions)

    def _work(self) -> None:
        engine, pause_seconds = self._engine, 0.0
        while True:
            self._take_acts(pause_seconds)
            if self._stopping:
                return
            if self._keep_pace is not None:
                self._keep_pace()
            if engine.has_work:
                events = engine.step()
                self._deliver(events)
                pause_seconds = 0.0 if events or not engine.idle else STUCK_SECONDS
            else:
                self._deliver(engine.tick())
                pause_seconds = IDLE_SECONDS

    def _take_acts(self, pause_seconds: float) -> None:
        """Run every act that waits; with a pause, wait that long for the first."""
        try:
            act = self._inbox.get(pause_seconds > 0, pause_seconds)
            if self._keep_pace is not None:
                self._keep_pace()  # an act of now is not to be dated by the last step
            while True:
                act()
                act = self._inbox.get(False)
        except Empty:
            return

    def _deliver(self, events: list[TokenEvent]) -> None:
        batch = []
        for event in events:
            self._num_output_tokens += event.token_id >= 0
            if event.finish_reason is not None:
                self._retry_after.note_end()
            live = self._live.route(event)
            if event.finish_reason is FinishReason.REJECTED:
                self._note_refusal(event, live)
            if live is not None:
                batch.append(RequestEvent(live, event))
        if batch:
            self._on_loop(_put_all, batch)

    def _note_refusal(self, event: TokenEvent, live: LiveRequest | None) -> None:
        """Keep why a request that waited was refused, for the one that reads its end."""
        rejection = self._engine.rejections.pop(event.root or event.seq_id, None)
        if live is not None and rejection is not None:
            live.refused = self._refused(rejection)

    def _refused(self, rejection: Rejection) -> Refused:
        seconds = self._retry_after.seconds(
            rejection.reason,
            num_running=self._engine.num_running,
            num_waiting=self._engine.num_waiting,
        )
        return Refused(rejection, seconds)

    def _cancel(self, live: LiveRequest) -> None:
        if self._live.drop(live):
            self._engine.cancel(live.root)
            self._retry_after.note_end()

    def _stop(self, live: LiveRequest, seq_id: int) -> None:
        if self._live.holds(live) and self._engine.stop(seq_id):
            self._live.sample_ended(live)
            self._retry_after.note_end()

    def _finish(self) -> None:
        """End what is still live, and the recording; its clients are told that we shut down."""
        self._tell_all(FinishReason.CANCELLED)
        self._engine.close()
        self._stopping = True

    def _fail(self) -> None:
        """End everything as failed, in the journal too as far as that still works."""
        self._tell_all(FinishReason.ERROR)
        try:
            self._engine.end_all(FinishReason.ERROR)
            self._engine.close()
        except Exception:  # noqa: BLE001 - the process ends anyway, and has said why
            _log.warning("the failed engine could not end its sequences in order")

    def _tell_all(self, reason: FinishReason) -> None:
        """Send every live request's client a last event, and forget them."""
        self._on_loop(_put_all, self._live.end_all(reason))

    def _on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: nobody waits for this any more
            _log.debug("the event loop ended before the engine's thread")


def _give(answer: asyncio.Future[_Answer], value: _Answer) -> None:
    if not answer.done():
        answer.set_result(value)


def _give_error(answer: asyncio.Future[_Answer], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _put_all(batch: list[RequestEvent]) -> None:
    for item in batch:
        item.request.put(item.event)
