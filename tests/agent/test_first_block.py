"""Time to first block: a sequence that waits exactly N seconds for it says N, everywhere."""

from pathlib import Path

import pytest

from agent.metrics.exporter import exporter_registry
from agent.reads.reads import open_reads
from tests.agent.factories_agent import Agent
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import SECOND, ToyEngine
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

NAME = "kvpulse_time_to_first_block_seconds"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return empty_store(tmp_path)


def test_a_wait_of_exactly_so_many_seconds_is_what_store_and_metric_say(
    tmp_path: Path, where: str
) -> None:
    engine = ToyEngine(tmp_path / "journal", run_id="r")
    own, shares, nothing = engine.arrive(), engine.arrive(), engine.arrive()
    engine.clock.now_ns += 7 * SECOND
    engine.admit(own)
    engine.allocate(own, 2)
    engine.clock.now_ns += 4 * SECOND
    engine.admit(shares)
    engine.share(shares, own.table[0])  # a block of somebody else's is its first one too
    engine.clock.now_ns += SECOND
    engine.allocate(own, 3)  # further blocks change nothing
    engine.allocate(shares, 1)
    engine.finish(own)
    engine.reject(nothing)
    engine.pool()
    agent = Agent(tmp_path / "journal", where)
    agent.go_on(3)

    metric = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in exporter_registry(agent.view, lambda: agent.time.wall_ns).collect()
        for sample in family.samples
        if sample.name.startswith(NAME)
    }
    reads = open_reads(where)
    (run,) = reads.engines()
    rows = {
        row.owner: row.time_to_first_block_ns
        for row in reads.requests(run.run_key, 0, 2**62, limit=9)
    }
    summary = reads.latency_summary(run.run_key, "time_to_first_block", 0, 2**62)
    reads.close()
    agent.vanish()
    engine.recorder.close()

    assert rows == {own.owner: 7 * SECOND, shares.owner: 11 * SECOND, nothing.owner: None}
    assert (summary.count, summary.sum, summary.min, summary.max) == (2, 18.0, 7.0, 11.0)
    assert metric[f"{NAME}_count", None] == 2
    assert metric[f"{NAME}_sum", None] == 18.0
    edges = sorted((float(le), value) for (_, le), value in metric.items() if le)
    assert {value for edge, value in edges if edge < 6.8} == {0}
    assert {value for edge, value in edges if edge > 11.3} == {2}
