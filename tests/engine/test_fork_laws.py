"""Laws of forks and beams under random requests, cancels and a pool that is too small."""

import dataclasses
from collections import Counter, defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.events import Kind
from tests.engine.factories_engine import COST, make_request
from tests.engine.factories_ledger import PlainLedger

FORKS = st.one_of(
    st.fixed_dictionaries({}),
    st.fixed_dictionaries({"n": st.integers(2, 4), "logprobs": st.booleans()}),
    st.fixed_dictionaries({"n": st.just(1), "best_of": st.integers(2, 4)}),
    st.fixed_dictionaries(
        {
            "beam_width": st.integers(1, 4),
            "early_stopping": st.booleans(),
            "length_penalty": st.sampled_from([0.0, 1.0, 2.0]),
        }
    ),
)
REQUESTS = st.fixed_dictionaries(
    {
        "prompt_tokens": st.integers(1, 14),
        "max_tokens": st.integers(1, 12),
        "ends_at": st.integers(1, 14),
        "prefix": st.sampled_from(["", "a", "ab", "abc", "b"]),
        "standing": st.fixed_dictionaries(
            {"tier": st.integers(0, 1), "priority": st.integers(-1, 1)}
        ),
        "fork": FORKS,
    }
)
# What happens before a step: a request comes, or the k-th of the live ones is cancelled or stopped.
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), REQUESTS),
        st.tuples(st.just("step"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["cancel", "stop"]), st.integers(0, 30)),
    ),
    min_size=3,
    max_size=20,
)


class Run:
    """An engine, and what its clients have been told."""

    def __init__(self, folder, **config):
        clock = VirtualClock()
        window = config.pop("window")
        config["host_blocks"] = 0 if config["preemption"] is PreemptionPolicy.RECOMPUTE else 8
        self.engine, self.recorder = open_engine(
            EngineConfig(
                **{
                    "total_blocks": 15,
                    "block_size": 4,
                    "max_batch": 6,
                    "token_budget": 9,
                    "max_context": 60,
                    "watermark_ratio": 0.0,
                    "audit_interval_ns": 50_000_000,
                    **config,
                }
            ),
            SimulatedRunner(clock, cost=COST, sliding_window=window),
            clock=clock,
            journal=JournalSettings(folder, wall_clock=clock.now_ns, segment_bytes=1 << 20),
        )
        self.requests = {}
        self.ends = defaultdict(Counter)
        self.dropped = set()

    def act(self, kind, value):
        if kind == "submit":
            request = request_of(**value)
            admission = self.engine.submit(request)
            if admission.accepted:
                self.requests[admission.seq_id] = request
        elif kind == "step":
            for _ in range(value):
                self.step()
        else:
            live = sorted(self.engine._scheduler.live)
            if live:
                self.end(kind, live[value % len(live)])
        self.engine.check()

    def end(self, kind, seq_id):
        root = self.engine._scheduler.live[seq_id].root_id
        self.dropped.add(root)
        ended = self.engine.cancel(root) if kind == "cancel" else self.engine.stop(seq_id)
        assert ended

    def step(self):
        for event in self.engine.step():
            if event.finish_reason is not None:
                self.ends[event.root][event.index] += 1
        self.engine.check()

    def finish(self):
        for _ in range(2_000):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError(f"still live: {self.engine._scheduler.live}")


def request_of(*, fork, standing, **fields):
    return dataclasses.replace(make_request(**fields, **fork), **standing)


def check_laws(run):
    pool = run.engine._pool
    assert sum(pool.counts) == 0
    for root, request in run.requests.items():
        if root not in run.dropped:
            sampling = request.sampling
            count = sampling.n if sampling.beam_width else sampling.num_sequences
            assert run.ends[root] == Counter(range(count)), "each sample ends once"
    run.engine.close()
    ledger = PlainLedger(in_order=False).read(run.recorder.directory)
    assert dict(ledger.events) == {k: n for k, n in run.engine.accounts().acts.items() if n}
    assert ledger.events[Kind.ARRIVE] + ledger.events[Kind.FORK] == sum(ledger.ended.values())
    assert not ledger.tables


SETTINGS = settings(
    max_examples=80,
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@SETTINGS
@given(
    acts=ACTS,
    window=st.sampled_from([None, 5, 9]),
    prefix_index=st.sampled_from(["off", "hash", "radix"]),
    preemption=st.sampled_from(list(PreemptionPolicy)),
)
def test_every_sample_ends_once_and_every_block_comes_back(tmp_path_factory, acts, **config):
    run = Run(tmp_path_factory.mktemp("journal"), **config)

    for act in acts:
        run.act(*act)
    run.finish()

    check_laws(run)
