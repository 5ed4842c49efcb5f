"""A process that records a simulated engine's way through a seeded workload, at a chosen pace.

`python -m tests.agent.simulated_writer JOURNAL SECONDS NUM_REQUESTS` writes for about so many real
seconds, then prints the engine's own account (counted by pool and scheduler) as JSON.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from engine.config import EngineConfig
from engine.simulation.trace_recording import TraceRun, record_trace
from engine.simulation.workload import WorkloadShape, make_workload

CONFIG = EngineConfig(
    engine="sim-a",
    total_blocks=512,
    block_size=16,
    max_batch=16,
    token_budget=1_024,
    max_queue=32,
    max_context=8_192,
    watermark_ratio=0.0,
)


def record(
    journal: Path, *, seconds: float = 0.0, num_requests: int = 200, engine: str = CONFIG.engine
) -> dict[str, object]:
    """Record the workload, spread over `seconds`; return the engine's account."""
    shape = WorkloadShape(num_requests=num_requests, scale=0.04, requests_per_second=8)
    requests = make_workload(shape, block_size=CONFIG.block_size)
    began = time.monotonic()

    def keep_pace(progress: object) -> None:
        done = progress.num_submitted / progress.num_requests  # type: ignore[attr-defined]
        time.sleep(max(0.0, began + done * seconds - time.monotonic()))

    recorded = record_trace(
        requests,
        journal=journal,
        run=TraceRun(config=replace(CONFIG, engine=engine)),
        on_progress=keep_pace,
    )
    assert recorded.not_written == 0
    return recorded.accounts.as_json()


if __name__ == "__main__":
    path, spread, number = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(record(Path(path), seconds=spread, num_requests=number)))
