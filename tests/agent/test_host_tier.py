"""Blocks in host memory obey the same laws; no engine here emits them yet, others do."""

import pytest

from kvpulse import Recorder
from kvpulse.events import FinishReason, FreeOutcome, Kind, PreemptMode, WaitCause, block_weight
from tests.agent.factories_ledger import follow
from tests.agent.factories_stream import SECOND, Clock

TOTAL = 8
TO_FREE = int(FreeOutcome.TO_FREE)


class SwappingEngine:
    """One sequence that is swapped out and in again, with an account of both tiers."""

    def __init__(self, journal):
        self.clock = Clock()
        self.recorder = Recorder.open(
            journal,
            "swapping",
            total_blocks=TOTAL,
            host_blocks=TOTAL,
            block_size=16,
            clock=self.clock,
            wall_clock=self.clock.wall,
        )

    def take(self, ids, *, host=False):
        self.recorder.allocate(1, ids, host=host)

    def give_back(self, ids, *, host=False):
        self.recorder.free(1, ids, 0, TO_FREE, host=host)

    def pools(self, active, host_active):
        self.clock.now_ns += SECOND
        for ids, host in ((active, False), (host_active, True)):
            checksum = sum(map(block_weight, ids)) % 2**64
            n = len(ids)
            self.recorder.pool(TOTAL, n, 0, TOTAL - n, n, checksum, host=host)

    def run(self):
        recorder = self.recorder
        recorder.arrive(1, 40, 10)
        recorder.admit(1)
        self.take([0, 1, 2])
        self.pools([0, 1, 2], [])
        recorder.swap_out(1, [0, 4, 1, 5, 2, 6])
        self.take([4, 5, 6], host=True)
        self.give_back([2, 1, 0])
        recorder.preempt(1, 0, int(PreemptMode.SWAP), 0, 3, 0)
        recorder.wait(1, int(WaitCause.POOL), 8)
        self.pools([], [4, 5, 6])
        recorder.resume(1, 40)
        recorder.swap_in(1, [4, 3, 5, 4, 6, 7])
        self.take([3, 4, 7])
        self.give_back([6, 5, 4], host=True)
        self.pools([3, 4, 7], [])
        self.give_back([7, 4, 3])
        recorder.finish(1, int(FinishReason.STOP), 40, 10, 50, 0)
        self.pools([], [])
        recorder.close()
        return recorder.directory


@pytest.fixture
def stream(tmp_path):
    return SwappingEngine(tmp_path).run()


def test_both_tiers_pass_every_audit_and_law(stream):
    ledger, stored = follow(stream)

    assert stored.failures == []
    assert (ledger.core.totals.audits_passed, ledger.core.totals.audits_failed) == (8, 0)
    assert (ledger.core.blocks.active, ledger.core.host.active) == (0, 0)
    counted = {kind: int(ledger.core.totals.stored[kind]) for kind in (Kind.SWAP_OUT, Kind.SWAP_IN)}
    assert counted == {Kind.SWAP_OUT: 3, Kind.SWAP_IN: 3}


def test_a_swapped_sequence_pays_for_the_blocks_of_the_gpu_alone(stream):
    _, stored = follow(stream)

    (row,) = stored.requests.values()
    assert row.block_seconds == pytest.approx(3 * 1 + 3 * 1)
    assert row.peak_blocks == 3
    assert (row.preemptions, row.wait_after_preempt_ns) == (1, SECOND)


def test_an_account_of_the_host_tier_that_differs_fails_the_audit(tmp_path):
    engine = SwappingEngine(tmp_path)
    engine.take([3], host=True)
    engine.pools([], [5])
    engine.recorder.close()

    ledger, stored = follow(engine.recorder.directory)

    assert ledger.core.totals.audits_failed == 1
    assert {failure.law for failure in stored.failures} >= {"audit_host"}
