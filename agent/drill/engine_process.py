"""Run the simulated engine of a drill in a process of its own, as an agent meets one.

Its pool is the scarcest part: 1,024 blocks hold about 29 requests of this traffic at once. Its
batch has 48 places. A step takes 80 ms and some, so a request of some 110 tokens stays 9 s. Beyond
about 3.1 requests a second the queue grows without end.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.drill.scenario import Scenario
from agent.drill.traffic import write_trace
from agent.errors import DrillError

ENGINE_OPTIONS: Final = (
    *("--simulated", "--json", "--step-ms", "80", "--total-blocks", "1024", "--max-batch", "48"),
    *("--token-budget", "2048", "--max-context", "8192", "--max-queue", "128"),
    *("--cancel-ratio", "0.08", "--tenants", "6"),
)
MOST_SECONDS: Final = 1_800
KILLED: Final = -9


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a run left behind.

    Attributes:
        truth: What its faults really did, oldest first.
    """

    engine: str
    journal: Path
    truth: tuple[dict[str, object], ...]


def record(
    scenario: Scenario, folder: Path, options: Sequence[str] = ENGINE_OPTIONS
) -> RecordedRun:
    """Run the engine to its end, as often as the scenario starts it.

    Raises:
        DrillError: The engine's process failed by itself.
    """
    trace, truth = folder / "trace.jsonl", folder / "truth.jsonl"
    write_trace(scenario.traffic, trace)
    journal = folder / "journal"
    command = [
        *(sys.executable, "-m", "kvpulse", "replay", str(trace), *options),
        *("--engine", scenario.name, "--journal", str(journal)),
        *("--seconds", f"{scenario.traffic.seconds:.3f}"),
        *("--seed", str(scenario.traffic.seed), "--faults-truth", str(truth)),
    ]
    for spec in scenario.fault_specs:
        command += ["--fault", spec]
    for _ in range(scenario.runs):
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
        # 1: events were lost, -9: it killed itself; both are what a fault may ask for.
        if done.returncode not in (0, 1, KILLED):
            raise DrillError(scenario.name, done.returncode, done.stderr)
    lines = truth.read_text(encoding="utf-8").splitlines() if truth.exists() else []
    return RecordedRun(scenario.name, journal, tuple(json.loads(line) for line in lines))
