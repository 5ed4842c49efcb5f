"""What a fault does to a whole engine, carried out once per pass."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.block_pool import BlockPool
from engine.faults.protocol import FaultInjector
from engine.request import Request

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class PassFaults:
    """Asks an injector about everything that no sequence and no step is needed for."""

    def __init__(
        self,
        faults: FaultInjector,
        pool: BlockPool,
        *,
        recorder: "Recorder | None",
        submit: Callable[[Request], object],
    ) -> None:
        self._faults = faults
        self._pool = pool
        self._recorder = recorder
        self._submit = submit
        self._records = True

    def act(self) -> None:
        """Do what is due; call it at the beginning of each pass, and while the engine idles."""
        faults, pool = self._faults, self._pool
        faults.before_step()
        if self._recorder is not None:
            self._record_or_not(self._recorder)
        wanted = faults.blocks_to_withdraw(pool.num_available, pool.total_blocks)
        if wanted > 0:
            pool.withdraw(wanted)
        elif wanted < 0:
            pool.restore(-wanted)
        for request in faults.requests():
            self._submit(request)

    def _record_or_not(self, recorder: "Recorder") -> None:
        records = self._faults.recording_allowed()
        if records is self._records:
            return
        self._records = records
        if records:
            recorder.resume_writing()
        else:
            recorder.pause_writing()
