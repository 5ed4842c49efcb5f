"""Faults that starve others: a pool that shrinks, admission that stalls, a tenant that hogs."""

import pytest

from engine.clock import VirtualClock
from engine.errors import ConfigError
from engine.faults.hog_tenant import HogTenant, HogTenantParameters
from engine.faults.pool_shrink import PoolShrink, PoolShrinkParameters
from engine.faults.setup import FaultSetup
from engine.runner import RunnerDescription
from kvpulse.events import Kind, PoolWord
from tests.engine.factories_faults import CONFIG, records_of, run_with

SECOND = 1_000_000_000


def make_setup(clock=None):
    return FaultSetup(clock or VirtualClock(), CONFIG)


def totals_of(run):
    """When each total was first stated, in order."""
    totals = []
    for record, words in records_of(run.recorded.directory, Kind.POOL):
        if not totals or totals[-1][1] != words[PoolWord.TOTAL]:
            totals.append((int(record["ts_ns"]), words[PoolWord.TOTAL]))
    return totals


def test_the_pool_goes_from_n_to_m_and_every_audit_agrees(tmp_path):
    run = run_with(tmp_path, "pool_shrink:blocks=96,after_seconds=30")

    totals = totals_of(run)
    assert (totals[0][1], totals[-1][1]) == (256, 160)
    assert 30 * SECOND <= totals[1][0] < 33 * SECOND
    assert run.truth[0]["total_before"] == 256
    assert run.truth[-1]["total_after"] == 160
    assert run.stored.failures == []
    assert run.recorded.accounts.active_blocks == 0
    accounts = run.recorded.accounts
    assert accounts.free_blocks + accounts.cached_blocks == 160


def test_the_blocks_come_back_when_the_fault_is_over(tmp_path):
    run = run_with(tmp_path, "pool_shrink:ratio=0.25,after_seconds=20,for_seconds=20", seconds=60)

    totals = totals_of(run)
    assert totals[0][1] == totals[-1][1] == 256
    assert min(total for _, total in totals) == 192
    assert 40 * SECOND <= totals[-1][0] < 43 * SECOND
    assert run.stored.failures == []


def test_blocks_in_use_are_asked_for_until_they_are_free():
    clock = VirtualClock()
    fault = PoolShrink(make_setup(clock), PoolShrinkParameters(after_seconds=1, blocks=100))

    assert fault.blocks_to_withdraw(free=50, total=256) == 0
    clock.advance(SECOND)
    assert fault.blocks_to_withdraw(free=50, total=256) == 50
    assert fault.blocks_to_withdraw(free=0, total=206) == 0
    assert fault.blocks_to_withdraw(free=80, total=206) == 50
    assert fault.blocks_to_withdraw(free=30, total=156) == 0


def test_a_pool_cannot_lose_all_of_its_blocks():
    with pytest.raises(ConfigError, match="below the pool's 256"):
        PoolShrink(make_setup(), PoolShrinkParameters(blocks=256))


def test_nobody_is_admitted_while_admission_stalls_and_the_engine_lives(tmp_path):
    run = run_with(tmp_path, "stall_admission:after_seconds=20,for_seconds=40")

    begin_ns, end_ns = (line["t_ns"] for line in run.truth)
    assert [line["admits"] for line in run.truth] == [False, True]
    for kind in (Kind.ADMIT, Kind.RESUME):
        times = [int(record["ts_ns"]) for record, _ in records_of(run.recorded.directory, kind)]
        assert not [t for t in times if begin_ns < t < end_ns]
    admits = records_of(run.recorded.directory, Kind.ADMIT)
    assert any(record["ts_ns"] > end_ns for record, _ in admits), "it goes on afterwards"
    beats = [r["ts_ns"] for r, _ in records_of(run.recorded.directory, Kind.HEARTBEAT)]
    assert sum(begin_ns < t < end_ns for t in beats) >= 36
    assert run.recorded.accounts.rejected_by_reason["queue_full"] > 0


def test_a_replay_of_a_stalled_engine_ends_and_gives_all_blocks_back(tmp_path):
    run = run_with(tmp_path, "stall_admission:after_seconds=20", seconds=900, requests=60)

    last_arrival = records_of(run.recorded.directory, Kind.ARRIVE)[-1][0]["ts_ns"]
    assert run.recorded.engine_ns - last_arrival < 150 * SECOND
    assert run.recorded.accounts.finished_by_reason["cancelled"] > 5, "those who wait"
    assert run.recorded.accounts.active_blocks == 0
    assert run.stored.failures == []


def test_a_hog_sends_real_requests_as_one_tenant(tmp_path):
    run = run_with(tmp_path, "hog_tenant:tenant=acme,every_seconds=2,after_seconds=20", seconds=60)
    healthy = run_with(tmp_path / "healthy", seconds=60)

    sent = sum(line["requests"] for line in run.truth)
    extra = run.recorded.accounts.requests - healthy.recorded.accounts.requests
    assert sent in (20, 21)
    assert abs(extra - sent) <= 5, "the workload's own last requests come a little later or sooner"
    mine = [row for row in run.stored.requests.values() if row.prompt_tokens == 256]
    assert len(mine) == sent
    assert len({row.tenant for row in mine}) == 1
    assert {line["tenant"] for line in run.truth} == {"acme"}


def describe(vocab_size):
    return RunnerDescription("torch", "tiny", "fp32", 64, (2,), vocab_size, 1024)


class Runner:
    def __init__(self, vocab_size):
        self.describe = lambda: describe(vocab_size)


@pytest.mark.parametrize("vocab_size", [256, 49_152])
def test_a_real_model_gets_tokens_of_its_vocabulary(vocab_size):
    clock = VirtualClock()
    fault = HogTenant(make_setup(clock), HogTenantParameters(every_seconds=1.0))
    runner = Runner(vocab_size)
    assert fault.wrap_runner(runner) is runner

    clock.advance(2 * SECOND)
    first, second, third = fault.requests()

    assert fault.requests() == []
    for request in (first, second, third):
        assert request.tenant == "hog"
        assert request.simulated is None
        assert request.sampling.ignore_eos
        assert len(request.prompt_token_ids) == 256
        assert request.sampling.max_tokens == 128
        assert all(0 <= token < vocab_size for token in request.prompt_token_ids)
    assert list(first.prompt_token_ids) != list(second.prompt_token_ids)


def test_a_hog_does_not_make_up_for_a_long_pause():
    clock = VirtualClock()
    fault = HogTenant(make_setup(clock), HogTenantParameters(every_seconds=0.001))
    fault.wrap_runner(Runner(0))

    clock.advance(3600 * SECOND)
    assert len(fault.requests()) == 64
    assert fault.requests() == []
