"""Where an engine can be made to misbehave: the questions that engine, server and Recorder ask.

Nothing that judges the engine reads an injector or its truth file; tests compare with it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.request import Request
from engine.runner import ModelRunner
from kvpulse.events import FinishReason


class FaultInjector(Protocol):
    """Decides where the engine misbehaves. The engine's thread asks, unless a method says else."""

    def kept_at_end(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Return which of an ended sequence's blocks are lost instead of freed.

        Asked once for each end, before anything is freed.
        """

    def freed_twice(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Return which blocks the sequence frees once more.

        Args:
            block_ids: Those that it just freed and that nobody counts on now. Freeing others
                again would take them from whoever shares them.
        """

    def admits(self) -> bool:
        """Return whether the scheduler may admit or resume anybody in this pass."""

    def blocks_to_withdraw(self, free: int, total: int) -> int:
        """Return how many blocks go out of service now; negative: how many come back.

        Asked at each pass, so that what could not be withdrawn yet is asked for again.

        Args:
            free: Blocks that can be taken, cached ones among them.
            total: Blocks in service.
        """

    def requests(self) -> Sequence[Request]:
        """Return requests that the engine is to submit now, as if a client had sent them."""

    def before_step(self) -> None:
        """Do what happens by itself; asked at each pass, also while the engine is idle."""

    def wrap_runner(self, runner: ModelRunner) -> ModelRunner:
        """Return the runner to use; called once, when the engine is built."""

    def wall_clock(self, read: Callable[[], int]) -> Callable[[], int]:
        """Return the wall clock to record with; called once, when the engine is built."""

    def recording_allowed(self) -> bool:
        """Return whether events may be written now; asked at each pass."""

    def frontend_delay_seconds(self) -> float:
        """Return how long to hold a request between its acceptance and the engine.

        Asked once per request, from the server's event loop.
        """


class NoFaults:
    """The default: nothing misbehaves. Faults override what they need."""

    def kept_at_end(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Return nothing."""
        return []

    def freed_twice(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Return nothing."""
        return []

    def admits(self) -> bool:
        """Return True."""
        return True

    def blocks_to_withdraw(self, free: int, total: int) -> int:
        """Return 0."""
        return 0

    def requests(self) -> Sequence[Request]:
        """Return nothing."""
        return ()

    def before_step(self) -> None:
        """Do nothing."""

    def wrap_runner(self, runner: ModelRunner) -> ModelRunner:
        """Return the runner itself."""
        return runner

    def wall_clock(self, read: Callable[[], int]) -> Callable[[], int]:
        """Return the clock itself."""
        return read

    def recording_allowed(self) -> bool:
        """Return True."""
        return True

    def frontend_delay_seconds(self) -> float:
        """Return 0."""
        return 0.0
