"""Several faults at once."""

from collections.abc import Callable, Sequence

from engine.faults.protocol import FaultInjector, NoFaults
from engine.request import Request
from engine.runner import ModelRunner
from kvpulse.events import FinishReason


class SeveralFaults:
    """Asks each of them, and lets each have its way."""

    def __init__(self, faults: Sequence[FaultInjector]) -> None:
        self._faults = tuple(faults)
        quiet = NoFaults.blocks_to_withdraw  # of those that never ask for blocks
        self._shrinking = [f for f in faults if type(f).blocks_to_withdraw is not quiet]

    def kept_at_end(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Return what any of them keeps; one is not asked for what another keeps already."""
        kept: list[int] = []
        left = list(block_ids)
        for fault in self._faults:
            mine = fault.kept_at_end(seq_id, left, reason)
            if mine:
                kept += mine
                gone = set(mine)
                left = [block_id for block_id in left if block_id not in gone]
        return kept

    def freed_twice(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Return what any of them frees again."""
        return [
            block_id
            for fault in self._faults
            for block_id in fault.freed_twice(seq_id, block_ids, reason)
        ]

    def admits(self) -> bool:
        """Return whether all of them admit."""
        answers = [fault.admits() for fault in self._faults]  # each is asked, whatever one says
        return all(answers)

    def blocks_to_withdraw(self, free: int, total: int) -> int:
        """Return what the one of them wants that leaves the fewest blocks."""
        wanted = [fault.blocks_to_withdraw(free, total) for fault in self._shrinking]
        return max(wanted, default=0)

    def requests(self) -> Sequence[Request]:
        """Return the requests of all."""
        return [request for fault in self._faults for request in fault.requests()]

    def before_step(self) -> None:
        """Let each do what happens by itself."""
        for fault in self._faults:
            fault.before_step()

    def wrap_runner(self, runner: ModelRunner) -> ModelRunner:
        """Wrap the runner once for each."""
        for fault in self._faults:
            runner = fault.wrap_runner(runner)
        return runner

    def wall_clock(self, read: Callable[[], int]) -> Callable[[], int]:
        """Wrap the clock once for each."""
        for fault in self._faults:
            read = fault.wall_clock(read)
        return read

    def recording_allowed(self) -> bool:
        """Return whether all of them allow it."""
        answers = [fault.recording_allowed() for fault in self._faults]
        return all(answers)

    def frontend_delay_seconds(self) -> float:
        """Return the delays of all, one after the other."""
        return sum(fault.frontend_delay_seconds() for fault in self._faults)
