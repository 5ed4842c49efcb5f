"""A small slice of the drill: real engines, real ledgers, and the store beside them."""

import json
import threading

import numpy as np
import pytest

from agent.agent_loop import AgentLoop
from agent.baseline_drill.plan import LOADS, Case, RunPlan, plan_pairs
from agent.baseline_drill.recorded import EngineProcess, side_of
from agent.baselines.compare import compare
from agent.baselines.comparison import Answer
from agent.baselines.gather import Grid
from agent.baselines.where import where
from agent.commands import drill
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.reads.windows import read_side
from agent.store.store import Store
from engine.simulation.steady_traffic import SteadyRun, steady_requests
from engine.simulation.trace_recording import TraceRun, record_trace
from tests.agent.factories_store import empty_store


@pytest.fixture(scope="module")
def engine():
    with EngineProcess() as engine:
        yield engine


@pytest.fixture(scope="module")
def calm(engine):
    return engine.side(RunPlan(0.5, 1.0, seed=1))


def test_an_hour_of_one_engine_against_another_like_it_is_no_alarm(engine, calm):
    other = engine.side(RunPlan(0.5, 1.0, seed=2))

    comparison = compare(calm, other)

    assert comparison.answer is not Answer.WORSE
    assert comparison.config_differences == ()
    assert calm.completeness.counted_ratio == 1.0
    assert calm.traffic.arrival_rate == pytest.approx(0.5 * 1.281, rel=0.1)


def test_decoding_a_fifth_slower_is_seen_within_the_hour(engine, calm):
    slower = engine.side(RunPlan(0.5, 1.0, seed=3, decode_ratio=1.2))

    findings = {f.name: f for f in compare(calm, slower).findings}

    found = findings["inter_token_p50"]
    assert found.answer is Answer.WORSE
    assert found.second / found.first == pytest.approx(1.2, rel=0.05)


def test_what_the_drill_compares_is_what_the_store_would_give(tmp_path):
    run = SteadyRun(load=0.8, seconds=900, seed=5)
    journal = tmp_path / "journal"
    recorded = record_trace(
        steady_requests(run),
        journal=journal,
        run=TraceRun(config=run.config, cost=run.cost, seconds=run.seconds),
    )
    path = empty_store(tmp_path)
    with Store.open(path) as store:
        AgentLoop(AgentConfig(journal=journal, store=path), store, LiveView(0)).drain(
            threading.Event()
        )

    direct = side_of(recorded.directory, hours=250 / 3600)

    series = direct.series
    grid = Grid(series.tier_seconds, series.start_ns, series.num_intervals)
    reads = open_reads(path)
    with reads._connection() as connection:
        stored = read_side(connection, "drill", grid, "drill")
    reads.close()
    assert np.array_equal(series.is_counted, stored.series.is_counted)
    for name, values in series.counters.items():
        assert np.array_equal(values, stored.series.counters[name], equal_nan=True), name
    for name, lines in series.latencies.items():
        assert lines.count.sum() == stored.series.latencies[name].count.sum() > 0
    found = where(direct.series, stored.series)
    assert found.second.num_requests == found.second.num_first_tokens > 200
    assert min(found.second.parts_ns[place] for place in (0, 2, 5)) > 0
    assert {part.change for part in found.parts} == {0.0}
    assert dict(direct.fingerprint) == dict(stored.fingerprint)
    assert {f.answer for f in compare(direct, stored).findings} <= {Answer.SAME, Answer.UNKNOWN}


def test_the_plan_is_what_is_promised_and_no_seed_comes_twice():
    pairs = list(plan_pairs())

    counts = {case: sum(pair.case is case for pair in pairs) for case in Case}
    assert counts == {
        Case.ALIKE_SHORT: 100,
        Case.ALIKE_LONG: 100,
        Case.DECODE_SLOWER: 20,
        Case.POOL_SMALLER: 20,
    }
    seeds = [run.seed for pair in pairs for run in (pair.first, pair.second)]
    assert len(set(seeds)) == len(seeds)
    assert {pair.first.load for pair in pairs} == set(LOADS)


def test_the_drill_of_explanations_runs_on_the_engines_side(capfd):
    code = drill.main(["--decomposition", "--seeds", "1", "--only", "nothing", "--json"])

    told = json.loads(capfd.readouterr().out)
    assert code == 0
    assert told["failed"] == []
    assert told["table"]["nothing"]["right"] == told["table"]["nothing"]["runs"] == 1
