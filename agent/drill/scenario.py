"""What a drill runs: which fault, under which load, and what triage has to say of it.

Only the drill knows what was put in; the rules see the journal, as everybody does.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from agent.triage.verdicts import Action, Verdict

LOADS: Final = (0.3, 0.6, 0.9)
SEEDS: Final = (1, 2)
HEALTHY_BEFORE_SECONDS: Final = 600.0
WATCHED_SECONDS: Final = 180.0
# Requests of `conv` keep some 1,200 tokens for 17 s, those of `code` some 2,000 for 3 s. So few of
# them keep the drill's pool of 16,384 tokens busy to about a half, on average.
SLICES: Final = {
    "azure-code": ("azure2023_code_until-1855.csv", 3),
    "azure-conv": ("azure2023_conv_until-1855.csv", 15),
}
SLICE_SECONDS: Final = 2_220.0

NO_SCALE: Final = frozenset({Action.SCALE})


@dataclass(frozen=True, slots=True)
class FaultCase:
    """One fault and the right answer.

    Attributes:
        forbids: Actions that would make it worse or help nothing.
        may_be_healthy: It harms nobody, and must not be taken for something that does.
    """

    fault: str
    verdict: Verdict
    forbids: frozenset[Action] = frozenset()
    parameters: str = ""
    may_be_healthy: bool = False

    def spec(self, *, after_seconds: float, seed: int) -> str:
        """Return what `kvpulse replay --fault` is told."""
        own = f",{self.parameters}" if self.parameters else ""
        return f"{self.fault}:after_seconds={after_seconds:.3f},seed={seed}{own}"


CASES: Final = {
    case.fault: case
    for case in (
        FaultCase("leak_on_cancel", Verdict.POOL_LEAK, NO_SCALE),
        FaultCase("leak_slow", Verdict.POOL_LEAK, NO_SCALE),
        FaultCase("double_free", Verdict.LEDGER_BROKEN, NO_SCALE),
        FaultCase("slow_step", Verdict.COMPUTE_SLOW),
        FaultCase("stall_admission", Verdict.STALLED, NO_SCALE),
        FaultCase("pool_shrink", Verdict.POOL_EXHAUSTED),
        FaultCase("hog_tenant", Verdict.TENANT_HOG, NO_SCALE),
        FaultCase("drop_events", Verdict.TELEMETRY_INCOMPLETE),
        FaultCase("slow_frontend", Verdict.FRONTEND_SLOW),
        FaultCase("engine_crash", Verdict.ENGINE_DOWN),
        FaultCase("clock_step", Verdict.HEALTHY, may_be_healthy=True),
    )
}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What clients ask for over a run.

    Attributes:
        load: Arrivals in parts of what the engine of the drill can keep up with.
        bursts: Half a minute of three times the load (at most 1.5), every five minutes.
        surge_after: From this part of the run on three times the load (at most 1.5).
        idle: For this part of the run nobody comes; then they come again.
        idle_after: For this part of the run, its last one, nobody comes any more.
        repeats: Prompts come again, so that the pool fills with cached blocks that are found.
        slice: A recorded slice that is followed instead; `load` says nothing then.
    """

    load: float
    seconds: float
    seed: int
    bursts: bool = False
    surge_after: float = 1.0
    idle: float = 0.0
    idle_after: float = 0.0
    repeats: bool = False
    slice: "TraceSlice | None" = None


@dataclass(frozen=True, slots=True)
class TraceSlice:
    """Every so-manieth request of a recorded trace, at its own time and with its own lengths.

    Attributes:
        path: A CSV of the Azure LLM inference traces 2023 (Patel et al., ISCA 2024).
        keep_each: How much smaller the drill's engine is than what the trace was recorded on.
    """

    path: Path
    keep_each: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run of the drill.

    Attributes:
        begins_seconds: When the faults begin, of engine time.
        watched_seconds: For how long it is judged from then on.
        runs: How often the engine is started, one after the other; more than one is a restart.
    """

    name: str
    traffic: Traffic
    faults: tuple[FaultCase, ...] = ()
    begins_seconds: float = 0.0
    watched_seconds: float = WATCHED_SECONDS
    runs: int = 1

    @property
    def fault_specs(self) -> list[str]:
        """Return what the engine is told."""
        return [
            case.spec(after_seconds=self.begins_seconds, seed=self.traffic.seed)
            for case in self.faults
        ]

    @property
    def expected(self) -> frozenset[Verdict]:
        """Return the verdicts that are right; empty where nothing is wrong."""
        return frozenset(case.verdict for case in self.faults if not case.may_be_healthy)


def faulted(loads: tuple[float, ...] = LOADS, seeds: tuple[int, ...] = SEEDS) -> Iterator[Scenario]:
    """Yield each fault at each load and seed."""
    for case in CASES.values():
        for load in loads:
            for seed in seeds:
                yield _faulted((case,), load, seed)


def pairs(load: float = 0.6, seed: int = 3) -> Iterator[Scenario]:
    """Yield two faults at once, for all pairs that can be at once."""
    cases = [case for case in CASES.values() if case.verdict is not Verdict.ENGINE_DOWN]
    for first, second in combinations(cases, 2):
        yield _faulted((first, second), load, seed)


def _faulted(cases: tuple[FaultCase, ...], load: float, seed: int) -> Scenario:
    names = "-and-".join(case.fault for case in cases)
    # Not at a whole minute, nor at the same time in every run.
    begins = HEALTHY_BEFORE_SECONDS + random.Random(f"{names} {load} {seed}").uniform(0, 60)
    traffic = Traffic(load, begins + WATCHED_SECONDS + 20.0, seed)
    return Scenario(f"{names}-{load}-{seed}", traffic, cases, begins)


def healthy(hours: float, seed: int = 1) -> Iterator[Scenario]:
    """Yield runs in which nothing is wrong; `hours` is their length, but for the short ones."""
    seconds, first = hours * 3_600, 10 * seed
    for load in (0.3, 0.7, 0.9):
        yield Scenario(f"healthy-{load}-{seed}", Traffic(load, seconds, first + 1))
    yield Scenario(f"bursts-{seed}", Traffic(0.5, seconds, first + 2, bursts=True))
    yield Scenario(f"idle-hours-{seed}", Traffic(0.5, seconds, first + 3, idle=0.8))
    yield Scenario(f"restart-{seed}", Traffic(0.6, seconds / 2, first + 4), runs=2)
    yield Scenario(f"cold-start-{seed}", Traffic(0.9, 300.0, first + 5))
    yield Scenario(f"cached-pool-{seed}", Traffic(0.6, seconds, first + 6, repeats=True))


def recorded(folder: Path, seed: int = 1) -> Iterator[Scenario]:
    """Yield healthy runs under recorded traffic, of the slices that lie in a folder."""
    for name, (file, keep_each) in SLICES.items():
        if (folder / file).is_file():
            traffic = Traffic(0.0, SLICE_SECONDS, seed, slice=TraceSlice(folder / file, keep_each))
            yield Scenario(f"{name}-{seed}", traffic)


def missing_slices(folder: Path | None) -> list[str]:
    """Return the names of the runs whose slices are not there."""
    return [
        name
        for name, (file, _) in SLICES.items()
        if folder is None or not (folder / file).is_file()
    ]


def quick() -> list[Scenario]:
    """Return a slice that a test can wait for: every fault once, and two healthy runs."""
    loads, seeds = (0.6,), (1,)
    short = [Scenario("healthy-0.7", Traffic(0.7, 600.0, 11)), *list(healthy(0.25))[3:4]]
    return [*faulted(loads, seeds), *short]
