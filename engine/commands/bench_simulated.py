"""The simulated half of `kvpulse bench engine`: what recording costs a step.

Decode-only batches on the simulated runner, one engine that records beside one that does not, in
turns of 100 steps. CPU time of the engine's thread; medians.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.errors import AccountError
from engine.open_engine import JournalSettings, open_engine
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.simulated_runner import SimulatedRunner

BATCHES: Final = (16, 64)
STEPS: Final = 100
ROUNDS: Final = 21
PROMPT_TOKENS: Final = 100
OUTPUT_TOKENS: Final = 100_000


def measure(*, rounds: int = ROUNDS) -> dict[str, float]:
    """Return `record_us_per_step_16`, `record_us_per_step_64`, `sequence_steps_per_cpu_second`.

    Raises:
        AccountError: What was recorded is not what the engine did.
    """
    figures: dict[str, float] = {}
    shared_memory = Path("/dev/shm")
    folder = shared_memory if shared_memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as journal:
        for batch in BATCHES:
            recorded_us, bare_us = _step_us(Path(journal), batch, rounds=rounds)
            figures[f"record_us_per_step_{batch}"] = round(recorded_us - bare_us, 2)
            figures["sequence_steps_per_cpu_second"] = round(batch / recorded_us * 1e6, 1)
    return figures


def _step_us(journal: Path, batch: int, *, rounds: int) -> tuple[float, float]:
    """Return the CPU time of a step in microseconds, with recording and without."""
    settings = JournalSettings(journal, run_id=f"batch-{batch}")
    clock = VirtualClock()
    config = EngineConfig(
        total_blocks=1_024 + batch * rounds * STEPS // 8, max_batch=batch, token_budget=8_192
    )
    recording, recorder = open_engine(config, SimulatedRunner(clock), clock=clock, journal=settings)
    assert recorder is not None, "a journal was asked for"
    bare_clock = VirtualClock()
    bare, _ = open_engine(config, SimulatedRunner(bare_clock), clock=bare_clock, journal=None)
    samples: dict[Engine, list[float]] = {recording: [], bare: []}
    for engine in samples:
        _fill_batch(engine, batch)
    for _ in range(rounds):
        for engine, spent in samples.items():
            started_ns = time.thread_time_ns()
            for _ in range(STEPS):
                engine.step()
            spent.append((time.thread_time_ns() - started_ns) / STEPS / 1_000)
    for engine in samples:
        engine.check()
        engine.close()
    emitted = recorder.emitted()
    acts = {kind: n for kind, n in recording.accounts().acts.items() if n}
    if acts != emitted or recorder.not_written():
        raise AccountError(f"the engine did {acts}, recorded were {emitted}")
    return statistics.median(samples[recording]), statistics.median(samples[bare])


def _fill_batch(engine: Engine, batch: int) -> None:
    """Let a full batch reach its decode phase, at staggered lengths."""
    for index in range(batch):
        content = SimulatedContent(PROMPT_TOKENS + index, OUTPUT_TOKENS)
        sampling = SamplingParams(max_tokens=OUTPUT_TOKENS // 10)
        engine.submit(Request(sampling=sampling, simulated=content))
    while engine.num_waiting or engine.accounts().prefix_queried_tokens == 0:
        engine.step()
    for _ in range(10):
        engine.step()
