"""Faults on sequences in every state: samples that share blocks, swapped ones, beams."""

import random

import pytest

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.faults.registry import build_faults, read_fault
from engine.faults.setup import FaultSetup
from engine.policy.scheduling_policy import PreemptionPolicy
from tests.engine.factories_engine import make_engine, make_request


@pytest.mark.parametrize("preemption", [PreemptionPolicy.RECOMPUTE, PreemptionPolicy.SWAP])
@pytest.mark.parametrize(
    "faults",
    [
        ("leak_slow:every=3",),
        ("leak_on_cancel", "double_free:every=2"),
        ("pool_shrink:blocks=4,after_seconds=1", "hog_tenant:every_seconds=0.4"),
    ],
)
def test_counts_and_tables_agree_after_each_step(faults, preemption):
    clock, drawn = VirtualClock(), random.Random(5)
    shape = {"total_blocks": 32, "block_size": 4, "max_context": 64, "max_batch": 6}
    setup = FaultSetup(clock, EngineConfig(**shape, token_budget=16))
    engine = make_engine(
        clock=clock,
        faults=build_faults([read_fault(fault) for fault in faults], setup),
        host_blocks=24,
        preemption=preemption,
        **shape,
    )
    live: list[int] = []

    for _ in range(400):
        if len(live) < 8 and drawn.random() < 0.3:
            samples = drawn.choice((1, 1, 2, 3))
            request = make_request(drawn.randint(4, 20), drawn.randint(2, 12), n=samples)
            admission = engine.submit(request)
            live += [admission.seq_id] if admission.accepted else []
        if live and drawn.random() < 0.1:
            engine.cancel(live.pop(drawn.randrange(len(live))))
        engine.step()
        if engine.idle:
            clock.advance(10_000_000)
        live = [seq_id for seq_id in live if engine.is_live(seq_id)]
        engine.check()

    engine.close()
    engine.check()
    accounts = engine.accounts()
    assert accounts.active_blocks == accounts.leaked_blocks
    assert bool(accounts.leaked_blocks) is any(fault.startswith("leak") for fault in faults)
