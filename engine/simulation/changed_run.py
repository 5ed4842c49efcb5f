"""Runs that differ in one known thing: what an explanation of differences is tried on.

The engine is one on which each group of differences shows in the time to first token: a step of
some 50 ms, prompts that take several times that, a pool of which half is in use. Its steps have
noise, and a cost that grows with the square of a step's prefill, which no linear fit knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from engine.block_hashers import mix
from engine.config import EngineConfig
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.cost_model import CostModel
from engine.simulation.trace_requests import TimedRequest

BLOCK_SIZE: Final = 64
NUM_TENANTS: Final = 4
SHARED_BLOCKS: Final = 2
TOKEN_BUDGET: Final = 2_048
PROMPT_TOKENS: Final = (144, 3_000)
OUTPUT_TOKENS: Final = (1, 40)


class Changed(StrEnum):
    """What the second run of a pair has different."""

    NOTHING = "nothing"
    LENGTHS = "lengths"
    ARRIVALS = "arrivals"
    PREFILL_SPEED = "prefill_speed"
    DECODE_SPEED = "decode_speed"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class ChangedRun:
    """What to simulate; ratios are against a run in which nothing is changed.

    Attributes:
        requests_per_second: Poisson.
        lengths_ratio: Of prompts' and outputs' medians.
        prefill_ratio, decode_ratio: Of what tokens cost.
    """

    seconds: float
    seed: int
    requests_per_second: float = 0.8
    lengths_ratio: float = 1.0
    prefill_ratio: float = 1.0
    decode_ratio: float = 1.0
    total_blocks: int = 250
    token_budget: int = TOKEN_BUDGET

    @property
    def config(self) -> EngineConfig:
        """What the engine is built with."""
        return EngineConfig(
            engine="drill",
            total_blocks=self.total_blocks,
            block_size=BLOCK_SIZE,
            max_batch=16,
            token_budget=self.token_budget,
            max_queue=256,
            max_context=8_192,
            audit_interval_ns=10 * 10**9,
        )

    @property
    def cost(self) -> CostModel:
        """What its steps cost; the squared term makes a full chunk a fifth dearer."""
        prefill_ns = 300_000 * self.prefill_ratio
        return CostModel(
            base_ns=int(300e6 * self.decode_ratio),
            prefill_token_ns=prefill_ns,
            decode_sequence_ns=4e6 * self.decode_ratio,
            context_token_ns=400 * self.decode_ratio,
            prefill_squared_ns=0.2 * prefill_ns / TOKEN_BUDGET,
            noise_ratio=0.05,
        )


def with_change(run: ChangedRun, changed: Changed) -> ChangedRun:
    """Return the run with one thing changed."""
    changes: dict[Changed, dict[str, float | int]] = {
        Changed.NOTHING: {},
        Changed.LENGTHS: {"lengths_ratio": 1.75},
        Changed.ARRIVALS: {"requests_per_second": 2.25 * run.requests_per_second},
        Changed.PREFILL_SPEED: {"prefill_ratio": 2.0},
        Changed.DECODE_SPEED: {"decode_ratio": 2.0},
        Changed.SETTINGS: {"total_blocks": run.total_blocks // 2, "token_budget": 512},
    }
    return replace(run, **changes[changed])  # type: ignore[arg-type]  # by name, each of its kind


def changed_requests(run: ChangedRun) -> Iterator[TimedRequest]:
    """Yield the requests in order of arrival; the same run gives the same ones."""
    source = np.random.default_rng(run.seed)
    seconds, number = 0.0, 0
    while True:
        seconds += float(source.exponential(1 / run.requests_per_second))
        if seconds > run.seconds:
            return
        number += 1
        prompt = int(
            np.clip(source.lognormal(np.log(700 * run.lengths_ratio), 0.35), *PROMPT_TOKENS)
        )
        output = int(np.clip(source.lognormal(np.log(8 * run.lengths_ratio), 0.35), *OUTPUT_TOKENS))
        tenant = int(source.integers(NUM_TENANTS))
        hashes = [mix(tenant << 8 | block) for block in range(SHARED_BLOCKS)]
        own = mix(run.seed << 32 | number)
        hashes += [own ^ block for block in range(SHARED_BLOCKS, prompt // BLOCK_SIZE)]
        request = Request(
            sampling=SamplingParams(max_tokens=output),
            tenant=f"tenant-{tenant}",
            simulated=SimulatedContent(prompt, output, hashes),
        )
        yield TimedRequest(int(seconds * 1e9), request)
