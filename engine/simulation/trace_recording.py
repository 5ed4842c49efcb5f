"""Record a simulated engine's way through a trace into a journal that keeps every event."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.accounts import Accounts
from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.faults.protocol import FaultInjector
from engine.faults.registry import build_faults
from engine.faults.setup import FaultSetup, TruthFile
from engine.faults.spec import FaultSpec
from engine.open_engine import JournalSettings, open_engine
from engine.sharing_report import SharingReport
from engine.simulation.cost_model import CostModel
from engine.simulation.simulated_run import Progress, Simulation
from engine.simulation.simulated_runner import SimulatedRunner
from engine.simulation.trace_requests import TimedRequest

KEEP_ALL_BYTES: Final = 64 * 2**30  # never reached: the journal grows only as events come
WALL_START_NS: Final = 1_790_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A journal and the engine's own account of what it must hold.

    Attributes:
        directory: The stream's.
        sharing: What sharing blocks gave and cost.
        engine_ns: Engine time that the recording spans.
        not_written: Events that found no segment; none, unless the disk was full.
    """

    accounts: Accounts
    sharing: SharingReport
    directory: Path
    engine_ns: int
    not_written: int


TRACE_CONFIG: Final = EngineConfig(
    engine="replay",
    total_blocks=16_384,
    block_size=16,
    max_batch=64,
    token_budget=8_192,
    max_queue=128,
    max_context=131_072,
    watermark_ratio=0.0,
)


@dataclass(frozen=True, slots=True)
class TraceRun:
    """How a trace is run.

    Attributes:
        speed: Engine seconds per wall second at most; None is as fast as the machine can.
        seconds: Stop after so much engine time; None is the whole trace.
        wall_start_ns: Wall time that engine time 0 stands for.
        faults: What is to go wrong on purpose.
        faults_truth: Where faults write what they did; None: nowhere.
    """

    config: EngineConfig = TRACE_CONFIG
    cost: CostModel = field(default_factory=CostModel)
    speed: float | None = None
    seconds: float | None = None
    max_bytes: int = KEEP_ALL_BYTES
    wall_start_ns: int = WALL_START_NS
    faults: tuple[FaultSpec, ...] = ()
    faults_truth: Path | None = None


def record_trace(
    requests: Seq[TimedRequest],
    *,
    journal: Path,
    min_events: int | None = None,
    run: TraceRun | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> RecordedTrace:
    """Run requests through the simulated engine and record everything.

    With `min_events`, stop soon after that many, and begin the requests again should they not be
    enough; what is live then is cancelled, so that the ledger closes. The same arguments give the
    same journal, run id apart.
    """
    run = run or TraceRun()
    clock = VirtualClock(speed=run.speed)
    settings = JournalSettings(
        journal,
        max_bytes=run.max_bytes,
        wall_clock=lambda: run.wall_start_ns + clock.now_ns(),
    )
    faults = _faults(run, clock, settings)
    runner = SimulatedRunner(clock, cost=run.cost)
    engine, recorder = open_engine(run.config, runner, clock=clock, journal=settings, faults=faults)
    assert recorder is not None, "a journal was asked for"
    most_ns = None if run.seconds is None else int(run.seconds * 1e9)
    ended = False

    def keep_on(progress: Progress) -> bool:
        nonlocal ended
        on_progress(progress)
        ended = most_ns is not None and clock.now_ns() >= most_ns
        if min_events is not None:
            ended = ended or engine.accounts().num_events >= min_events
        return not ended

    Simulation(engine, clock, requests, faults=faults).run(keep_on)
    while min_events is not None and not ended:
        Simulation(engine, clock, requests, faults=faults).run(keep_on)
    engine.close()
    return RecordedTrace(
        accounts=engine.accounts(),
        sharing=engine.sharing_report(),
        directory=recorder.directory,
        engine_ns=clock.now_ns(),
        not_written=sum(recorder.not_written().values()),
    )


def _faults(run: TraceRun, clock: VirtualClock, settings: JournalSettings) -> FaultInjector:
    truth = None if run.faults_truth is None else TruthFile(run.faults_truth)
    setup = FaultSetup(clock, run.config, truth, wall_clock=settings.wall_clock)
    return build_faults(run.faults, setup)
