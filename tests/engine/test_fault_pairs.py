"""Two faults at once: each does its own, and the books stay in order."""

import pytest

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.faults.registry import build_faults, read_fault
from engine.faults.setup import FaultSetup
from tests.engine.factories_engine import make_engine
from tests.engine.factories_faults import run_with

PAIRS = [
    ("pool_shrink:after_seconds=20", "drop_events:drop_seconds=3,keep_seconds=6"),
    ("pool_shrink:after_seconds=15,for_seconds=15", "leak_slow:every=6"),
    ("hog_tenant:every_seconds=3", "stall_admission:after_seconds=20,for_seconds=15"),
    ("clock_step:every_seconds=7", "slow_frontend"),
    ("slow_step", "double_free:every=4"),
    ("hog_tenant:every_seconds=3", "leak_on_cancel"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_faults_at_once_keep_the_books_in_order(tmp_path, first, second):
    run = run_with(tmp_path, first, second, seconds=50, requests=70)

    names = {line["fault"] for line in run.truth}
    assert names == {first.partition(":")[0], second.partition(":")[0]}
    emitted = {kind: n for kind, n in run.recorded.accounts.acts.items() if n}
    assert dict(run.written() + run.told_lost()) == emitted
    assert run.stored.failures == []
    kept = {
        (line["owner"], block)
        for line in run.truth
        if line["fault"].startswith("leak")
        for block in line["blocks"]
    }
    assert run.leaked() <= kept
    assert run.recorded.accounts.active_blocks == len({block for _, block in kept})


def test_of_two_shrinking_faults_the_deeper_one_holds_until_it_ends():
    clock = VirtualClock()
    setup = FaultSetup(clock, EngineConfig(total_blocks=16), None, wall_clock=clock.now_ns)
    specs = [
        "pool_shrink:after_seconds=0,ratio=0.25",
        "pool_shrink:after_seconds=0,for_seconds=1,ratio=0.5",
        "slow_step",
    ]
    faults = build_faults([read_fault(spec) for spec in specs], setup)
    engine = make_engine(clock=clock, faults=faults)

    def totals():
        found = []
        for _ in range(3):
            engine.tick()
            found.append(engine._pool.total_blocks)
        return found

    assert totals() == [8, 8, 8]
    clock.advance(1_000_000_000)
    assert totals() == [12, 12, 12]
