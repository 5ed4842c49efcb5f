"""What is recorded under every policy is what happened: a plain ledger and the agent's agree."""

import random

import pytest

from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.policy.scheduling_policy import (
    PreemptionPolicy,
    SchedulingPolicy,
    TenantPolicy,
    TierPolicy,
)
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.events import Kind, PreemptMode, WaitCause
from kvpulse.reader import StreamReader
from tests.engine.factories_engine import COST
from tests.engine.factories_ledger import PlainLedger
from tests.engine.factories_policy import MS, ask

POLICY = SchedulingPolicy(
    aging_ns=500 * MS,
    batch_patience_ns=2_000 * MS,
    protected_tokens=2,
    fairness_ns_per_token=MS,
    queue_timeout_ns=1_500 * MS,
    batch=TierPolicy(step_tokens=12, watermark_ratio=0.1),
    tenants={
        "a": TenantPolicy(max_blocks=14, weight=2),
        "b": TenantPolicy(reserved_blocks=5),
    },
)


def run(folder, *, seed, **settings):
    """Drive an engine through random trouble; return it and its recorder, both ended."""
    clock = VirtualClock()
    config = {
        "total_blocks": 40,
        "block_size": 4,
        "max_batch": 8,
        "token_budget": 32,
        "max_context": 96,
        "watermark_ratio": 0.05,
        "audit_interval_ns": 20 * MS,
        "policy": POLICY,
        **settings,
    }
    engine, recorder = open_engine(
        EngineConfig(**config),
        SimulatedRunner(clock, cost=COST),
        clock=clock,
        journal=JournalSettings(folder, wall_clock=clock.now_ns),
    )
    source = random.Random(seed)
    for number in range(120):
        request = random_request(source, clock.now_ns())
        root = engine.submit(request).seq_id
        for _ in range(source.randrange(6)):
            engine.step()
            engine.check()
        if source.random() < 0.1:
            engine.cancel(root)
        if number == 80:
            engine._pool.withdraw(6)
    while engine.has_work:
        engine.step()
        if engine.idle:
            clock.advance(10 * MS)
    engine.check()
    engine.close()
    return engine, recorder


def random_request(source, now_ns):
    sampling = source.choice([{}, {}, {}, {}, {"n": 3}, {"beam_width": 3}])
    return ask(
        source.randrange(1, 40),
        source.randrange(1, 40),
        sampling=sampling,
        prefix=source.choice(["", "abc", "abcdef"]),
        tenant=source.choice(["a", "b", "c"]),
        tier=source.randrange(2),
        priority=source.randrange(-1, 2),
        deadline_ns=now_ns + 900 * MS if source.random() < 0.1 else 0,
    )


@pytest.fixture(scope="module", params=["hash", "radix", "off"])
def recorded(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("journal")
    return run(
        folder,
        seed=5,
        prefix_index=request.param,
        host_blocks=24,
        preemption=PreemptionPolicy.AUTO,
        total_blocks=40,
    )


def test_each_kind_is_recorded_as_often_as_it_was_done(recorded):
    engine, recorder = recorded

    assert recorder.not_written() == {}
    assert recorder.emitted() == {kind: n for kind, n in engine.accounts().acts.items() if n}


def test_the_agents_ledger_finds_every_law_kept(recorded):
    _, recorder = recorded
    reader = StreamReader(recorder.directory, is_alive=lambda: False)
    ledger = Ledger(RunShape(40, 24, 4))
    while (batch := reader.read()) is not None:
        ledger.apply(batch)
    delta = ledger.take()

    assert not delta.audits.failures
    assert delta.audits.failed == 0
    assert delta.audits.passed > 100
    assert not delta.leaks
    assert all(row.state in ("finished", "cancelled", "rejected") for row in delta.requests)


@pytest.mark.parametrize("prefix_index", ["hash", "off"])
def test_the_plain_ledger_meets_every_kind_of_wait_and_of_giving_way(tmp_path, prefix_index):
    engine, recorder = run(
        tmp_path,
        seed=11,
        prefix_index=prefix_index,
        host_blocks=24,
        preemption=PreemptionPolicy.SWAP,
    )

    ledger = PlainLedger().read(recorder.directory)

    assert dict(ledger.events) == {kind: n for kind, n in engine.accounts().acts.items() if n}
    assert {mode for _, _, mode, *_ in ledger.choices} == {PreemptMode.RECOMPUTE, PreemptMode.SWAP}
    assert any(beneficiary for _, beneficiary, *_ in ledger.choices)
    expected = set(WaitCause) - {WaitCause.DEFERRED, WaitCause.ENGINE_BUSY}
    assert expected <= set(ledger.causes_seen)
    assert ledger.events[Kind.SWAP_IN] > 0
    assert ledger.tables == {}
    assert ledger.host == {}
