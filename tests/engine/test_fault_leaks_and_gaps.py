"""Leaks in a recording with holes: every law holds, and each leaked block is found."""

import random

import pytest

from kvpulse.events import UNKNOWN_OWNER
from tests.engine.factories_faults import run_with

SEEDS = range(6)


def drawn_faults(seed: int) -> list[str]:
    """Leaks and gaps of random frequency; the seed is part of each name."""
    draw = random.Random(seed)
    leak = draw.choice((f"leak_on_cancel:every={draw.randint(1, 4)}", "leak_slow:most_blocks=5"))
    drop, keep = draw.uniform(0.5, 6), draw.uniform(2, 9)
    both = [leak, f"leak_slow:every={draw.randint(2, 9)},seed={seed}"]
    return [
        *both[: draw.randint(1, 2)],
        f"drop_events:drop_seconds={drop},keep_seconds={keep},for_seconds=40",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_laws_hold_and_the_leaked_blocks_are_those_of_the_truth(tmp_path, seed):
    run = run_with(tmp_path, *drawn_faults(seed), seconds=60, requests=90)

    run.ledger.close()
    last = run.ledger.take()
    live = run.ledger.live()

    kept = {
        (line["owner"], block)
        for line in run.truth
        if line["fault"].startswith("leak")
        for block in line["blocks"]
    }
    found = {(leak.owner, leak.block) for leak in live.leaks}
    assert live.num_gaps > 0
    assert [*run.stored.failures, *last.audits.failures] == []
    assert {block for _, block in found} <= {block for _, block in kept}
    assert {place for place in found if place[0] != UNKNOWN_OWNER} <= kept
    if live.balanced is None:  # no segment was reserved in real time before the engine had ended
        return
    assert {block for _, block in found} == {block for _, block in kept}
    assert live.gauges["active_blocks"] == len({block for _, block in kept})
