"""Random operations on engines with every policy at work; everything is recounted after each.

What they recorded is followed at the end, by a plain ledger and by the agent's: each audit and each
law has to hold, and nothing may be left over.
"""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.policy.scheduling_policy import PreemptionPolicy, TenantPolicy, TierPolicy
from tests.engine.factories_policy import MS, WINDOWS, Watched, ask, with_windows

TENANTS = {
    "capped": TenantPolicy(max_blocks=11, weight=2),
    "sure": TenantPolicy(reserved_blocks=4, max_blocks=16),
    "small": TenantPolicy(max_blocks=7),
}
POLICIES = st.fixed_dictionaries(
    {
        "aging_ns": st.sampled_from([0, 20 * MS, 1_000 * MS]),
        "batch_patience_ns": st.sampled_from([0, 100 * MS, 10_000 * MS]),
        "fairness_ns_per_token": st.sampled_from([0, 5 * MS]),
        "preempt_for_waiting": st.sampled_from([True, True, False]),
        "protected_tokens": st.sampled_from([0, 0, 3]),
        "swap_min_tokens": st.integers(0, 12),
        "high_watermark_ratio": st.sampled_from([None, 0.8]),
        "queue_timeout_ns": st.sampled_from([0, 0, 600 * MS]),
        "total_timeout_ns": st.sampled_from([0, 0, 900 * MS]),
        "batch": st.sampled_from(
            [TierPolicy(), TierPolicy(step_tokens=4, watermark_ratio=0.2, max_context=24)]
        ),
        "tenants": st.sampled_from([{}, TENANTS]),
    }
)
ENGINES = st.fixed_dictionaries(
    {
        "total_blocks": st.integers(16, 24),
        "max_batch": st.integers(3, 9),
        "token_budget": st.sampled_from([12, 20, 64]),
        "watermark_ratio": st.sampled_from([0.0, 0.1]),
        "prefix_index": st.sampled_from(["hash", "radix", "off"]),
        "host_blocks": st.sampled_from([8, 30]),
        "preemption": st.sampled_from(list(PreemptionPolicy)),
        "windows": st.sampled_from(WINDOWS),
        "audit_interval_ns": st.just(50 * MS),
        "policy": POLICIES,
    }
).map(with_windows)
SAMPLING = st.sampled_from([{}, {}, {}, {"n": 2}, {"n": 1, "best_of": 3}, {"beam_width": 2}])
REQUESTS = st.builds(
    ask,
    prompt_tokens=st.integers(1, 20),
    max_tokens=st.integers(4, 24),
    prefix=st.text("ab", max_size=4),
    ends_at=st.integers(2, 30),
    tenant=st.sampled_from(["", "capped", "sure", "small", "other"]),
    tier=st.integers(0, 1),
    priority=st.integers(-2, 2),
    sampling=SAMPLING,
)


class EngineMachine(RuleBasedStateMachine):
    num_acts = 0

    @initialize(config=ENGINES)
    def open(self, config):
        self.config = config
        self.journal = tempfile.TemporaryDirectory()
        self.begin()

    def begin(self):
        self.watched = Watched(folder=Path(self.journal.name), **self.config)

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=5))
    def submit(self, requests):
        for request in requests:
            self.watched.submit(request)

    @rule(request=REQUESTS, late_ns=st.integers(0, 150 * MS), whole=st.booleans())
    def submit_with_deadline(self, request, late_ns, whole):
        name = "deadline_ns" if whole else "queue_deadline_ns"
        object.__setattr__(request, name, self.watched.clock.now_ns() + 1 + late_ns)
        self.watched.submit(request)

    @rule(n=st.integers(1, 10))
    def step(self, n):
        for _ in range(n):
            self.watched.step()

    @rule(place=st.integers(0, 30))
    def cancel(self, place):
        live = self.watched.live
        if live:
            self.watched.cancel(live[place % len(live)].root_id)

    @rule(place=st.integers(0, 30))
    def stop_one_sample(self, place):
        live = [seq for seq in self.watched.live if seq.gang is None]
        if live:
            self.watched.stop(live[place % len(live)])

    @rule(duration_ns=st.integers(1, 100 * MS))
    def wait(self, duration_ns):
        self.watched.wait(duration_ns)

    @rule(n=st.integers(1, 8))
    def shrink_the_pool(self, n):
        pool = self.watched.engine._pool
        if pool.total_blocks - n >= 12:
            pool.withdraw(n)
        self.watched.check()

    @rule()
    def restore_the_pool(self):
        engine = self.watched.engine
        engine._pool.restore(engine.config.total_blocks)
        self.watched.check()

    @precondition(lambda self: len(self.watched.live) > 2)
    @rule(request=REQUESTS)
    def drain(self, request):
        """Shut down in the state reached: what is live ends by itself, and nothing new is taken."""
        self.watched.engine.begin_drain()
        assert not self.watched.submit(request).accepted
        self.end()
        self.begin()

    @precondition(lambda self: len(self.watched.live) > 2)
    @rule()
    def close(self):
        """Shut down in the state reached, at once."""
        self.watched.engine.close()
        self.watched.dropped.update(self.watched.accepted)
        self.end()
        self.begin()

    def end(self):
        type(self).num_acts += self.watched.num_acts  # those that were drawn, none of the rest
        self.watched.finish()
        self.watched.check_journal()

    def teardown(self):
        if hasattr(self, "watched"):
            self.end()
            self.journal.cleanup()


def test_ten_thousand_random_operations_leave_every_engine_consistent():
    EngineMachine.num_acts = 0

    run_state_machine_as_test(
        EngineMachine,
        settings=settings(
            max_examples=300,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],  # a busy machine draws slowly
        ),
    )

    print(EngineMachine.num_acts, "operations")
    assert EngineMachine.num_acts >= 10_000
