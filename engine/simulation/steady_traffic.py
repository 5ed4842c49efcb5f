"""Traffic that does not change over hours, and an engine slow enough to simulate them in seconds.

Requests come at random (Poisson), with lognormal lengths; those of a tenant begin with the same 128
tokens. A step takes a quarter of a second and some, so that an hour has about 14,000 steps; 1,000
blocks and 16 places in the batch are about equally scarce.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.block_hashers import mix
from engine.config import EngineConfig
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.cost_model import CostModel
from engine.simulation.trace_requests import TimedRequest

REQUESTS_PER_SECOND_AT_FULL_LOAD: Final = 1.281  # measured: what the engine below finishes at most
TOTAL_BLOCKS: Final = 1_000
BLOCK_SIZE: Final = 16
NUM_TENANTS: Final = 4
SHARED_BLOCKS: Final = 8
PROMPT_TOKENS: Final = (144, 4_000)
OUTPUT_TOKENS: Final = (1, 200)


@dataclass(frozen=True, slots=True)
class SteadyRun:
    """What to simulate.

    Attributes:
        load: Arrivals in parts of what the engine finishes at most.
        decode_ratio: Factor on what decoding costs: 1.2 is a fifth slower.
        pool_ratio: Factor on the number of blocks.
    """

    load: float
    seconds: float
    seed: int
    decode_ratio: float = 1.0
    pool_ratio: float = 1.0

    @property
    def config(self) -> EngineConfig:
        """What the engine is built with."""
        return EngineConfig(
            engine="drill",
            total_blocks=int(TOTAL_BLOCKS * self.pool_ratio),
            block_size=BLOCK_SIZE,
            max_batch=16,
            token_budget=2_048,
            max_queue=64,
            max_context=8_192,
            audit_interval_ns=10 * 10**9,
        )

    @property
    def cost(self) -> CostModel:
        """What its steps cost."""
        return CostModel(
            base_ns=int(250e6 * self.decode_ratio),
            prefill_token_ns=100_000,
            decode_sequence_ns=int(4e6 * self.decode_ratio),
            context_token_ns=400 * self.decode_ratio,
            noise_ratio=0.05,
        )


def steady_requests(run: SteadyRun) -> list[TimedRequest]:
    """Return the requests in order of arrival; the same run gives the same ones."""
    return list(_requests(run, np.random.default_rng(run.seed)))


def _requests(run: SteadyRun, source: np.random.Generator) -> Iterator[TimedRequest]:
    rate = run.load * REQUESTS_PER_SECOND_AT_FULL_LOAD
    seconds = 0.0
    number = 0
    while True:
        seconds += float(source.exponential(1 / rate))
        if seconds > run.seconds:
            return
        number += 1
        prompt = int(np.clip(source.lognormal(np.log(700), 0.7), *PROMPT_TOKENS))
        output = int(np.clip(source.lognormal(np.log(30), 0.6), *OUTPUT_TOKENS))
        tenant = int(source.integers(NUM_TENANTS))
        hashes = [mix(tenant << 8 | block) for block in range(SHARED_BLOCKS)]
        own = mix(run.seed << 32 | number)
        hashes += [own ^ block for block in range(SHARED_BLOCKS, prompt // BLOCK_SIZE)]
        content = SimulatedContent(prompt, output, hashes)
        sampling = SamplingParams(max_tokens=output)
        request = Request(sampling=sampling, tenant=f"tenant-{tenant}", simulated=content)
        yield TimedRequest(int(seconds * 1e9), request)
