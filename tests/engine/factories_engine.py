"""Small engines on the simulated runner, and requests for them."""

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.request import Request, SimulatedContent
from engine.sampling_params import SamplingParams
from engine.simulation.cost_model import CostModel
from engine.simulation.simulated_runner import SimulatedRunner

COST = CostModel(base_ns=10_000_000)


def make_engine(
    *, clock=None, recorder=None, keyframes=None, faults=None, window=None, groups=(), **settings
) -> Engine:
    """Return a small simulated engine: 16 blocks of 4 slots, 4 sequences at once.

    Its model has a `window` in all layers, or `groups` of layers with a window each or None.
    """
    chosen = {
        "total_blocks": 16,
        "block_size": 4,
        "max_batch": 4,
        "token_budget": 16,
        "max_queue": 64,
        "max_context": 64,
        "watermark_ratio": 0.0,
        **settings,
    }
    clock = clock or VirtualClock()
    return Engine(
        EngineConfig(**chosen),
        SimulatedRunner(clock, cost=COST, sliding_window=window, group_windows=groups),
        clock=clock,
        recorder=recorder,
        keyframes=keyframes,
        faults=faults,
    )


def make_request(
    prompt_tokens=8, max_tokens=8, *, prefix="", ends_at=None, tenant="", block_size=4, **fields
) -> Request:
    """Return a simulated request; those with the same `prefix` letters share leading blocks.

    Each letter stands for one full block of content; blocks after them are nobody else's.
    """
    full = prompt_tokens // block_size
    hashes = [hash_of(prefix[: i + 1]) for i in range(min(full, len(prefix)))]
    return Request(
        sampling=SamplingParams(max_tokens=max_tokens, **fields),
        tenant=tenant,
        simulated=SimulatedContent(prompt_tokens, ends_at or max_tokens + 1, tuple(hashes)),
    )


def hash_of(prefix: str) -> int:
    """Return a content hash for a run of letters."""
    return int.from_bytes(prefix.encode().rjust(8, b"\1")[-8:], "little")


def run_until_done(engine: Engine, *, most_steps=10_000) -> list:
    """Step until nothing is live, recounting after each step; return all tokens."""
    events = []
    for _ in range(most_steps):
        if not engine.has_work:
            return events
        events += engine.step()
        engine.check()
    raise AssertionError(f"{most_steps} steps were not enough")
