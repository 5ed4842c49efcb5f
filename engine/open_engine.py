"""Build an engine together with its recording."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.clock import Clock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.faults.protocol import FaultInjector, NoFaults
from engine.recording import KeyframeSource
from engine.runner import ModelRunner
from kvpulse.identity import KeyedHashes
from kvpulse.recorder import Recorder

MIB = 2**20


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Where and how an engine's events are recorded.

    Attributes:
        run_id: None makes one of time and process.
    """

    folder: Path
    segment_bytes: int = 16 * MIB
    max_bytes: int = 256 * MIB
    run_id: str | None = None
    wall_clock: Callable[[], int] = time.time_ns


def open_engine(
    config: EngineConfig,
    runner: ModelRunner,
    *,
    clock: Clock,
    journal: JournalSettings | None,
    faults: FaultInjector | None = None,
    hashes: KeyedHashes | None = None,
) -> tuple[Engine, Recorder | None]:
    """Return an engine that records into `journal`, and its Recorder; neither without one."""
    faults = faults or NoFaults()
    keyframes = KeyframeSource()
    recorder = None
    if journal is not None:
        recorder = Recorder.open(
            journal.folder,
            config.engine,
            total_blocks=config.total_blocks,
            block_size=config.block_size,
            host_blocks=config.host_blocks,
            snapshot=keyframes.take,
            clock=clock.now_ns,
            wall_clock=faults.wall_clock(journal.wall_clock),
            segment_bytes=journal.segment_bytes,
            max_bytes=journal.max_bytes,
            run_id=journal.run_id,
        )
    engine = Engine(
        config,
        faults.wrap_runner(runner),
        clock=clock,
        recorder=recorder,
        keyframes=keyframes,
        faults=faults,
        hashes=hashes,
    )
    return engine, recorder
