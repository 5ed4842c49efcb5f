"""A real Prometheus scrapes a real agent that follows a simulated engine: the board is right.

Two moments are compared: before the first request, and in the middle of the run with sequences
running and waiting. The window of every rate spans exactly the two scrapes of those moments, so
that Prometheus has nothing to extrapolate and equality can be asked for.
"""

import shutil
import subprocess
from dataclasses import dataclass

import pytest

from agent.metrics.table import TABLE
from agent.reads.reads import Reads, open_reads
from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.simulation.simulated_run import Simulation
from engine.simulation.simulated_runner import SimulatedRunner
from engine.simulation.workload import WorkloadShape, make_workload
from tests.end_to_end.factories_board import (
    NOT_OF_THE_STORE,
    QUANTILES,
    Facts,
    bucket_around,
    drawn_queries,
    expected_values,
    facts_of,
)
from tests.end_to_end.factories_processes import Running, running_agent
from tests.prometheus import PrometheusServer, running_prometheus
from tests.waiting import wait_until

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

BLOCK_SIZE = 16
VIRTUAL_SECONDS = 50
SHAPE = WorkloadShape(
    num_requests=600,
    requests_per_second=6.0,
    num_tenants=3,
    scale=0.06,
    too_long_ratio=0.02,
    never_fits_ratio=0.02,
    max_context=8_192,
)
CONFIG = EngineConfig(
    engine="engine-0",
    total_blocks=600,
    block_size=BLOCK_SIZE,
    max_batch=24,
    max_queue=40,
    host_blocks=64,
    preemption=PreemptionPolicy.AUTO,
)
PRICE = {"KVPULSE_PRICE_PER_GPU_HOUR": "3.6"}
# Only while the pool is falling.
SOMETIMES_ABSENT = {"kvpulse_kv_exhaustion_seconds"}


@dataclass(frozen=True)
class Scene:
    """Everything a test may ask, after the run was stopped half-way."""

    agent: Running
    prometheus: PrometheusServer
    reads: Reads
    run_key: int
    before: Facts
    after: Facts
    start: float  # of the scrape that saw the moment before
    end: float  # of the scrape that saw the moment after

    @property
    def window(self) -> str:
        """A window that holds both scrapes and next to nothing beyond."""
        return f"{round((self.end - self.start) * 1000) + 1}ms"

    def evaluate(self, expr):
        """The expression at the second moment."""
        return self.prometheus.at(expr, self.end)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    home = tmp_path_factory.mktemp("board")
    clock = VirtualClock(1_000_000_000)
    runner = SimulatedRunner(clock, max_context=SHAPE.max_context)
    engine, recorder = open_engine(
        CONFIG, runner, clock=clock, journal=JournalSettings(home / "journal")
    )
    with (
        running_agent(home, journal=home / "journal", store=home / "store.db", **PRICE) as agent,
        running_prometheus(home, f"127.0.0.1:{agent.port}") as prometheus,
    ):
        start = scraped(prometheus, recorder)
        reads = open_reads(str(home / "store.db"))
        [row] = reads.engines()
        before = facts_of(reads, row.run_key, live_engine(agent))

        simulation = Simulation(engine, clock, make_workload(SHAPE, block_size=BLOCK_SIZE))
        simulation.run(
            lambda progress: progress.now_ns < VIRTUAL_SECONDS * 1e9 or not engine.num_waiting
        )
        end = scraped(prometheus, recorder)
        after = facts_of(reads, row.run_key, live_engine(agent))

        yield Scene(agent, prometheus, reads, row.run_key, before, after, start, end)
        reads.close()
        engine.close()


def scraped(prometheus, recorder):
    """Wait until Prometheus has seen all that was recorded; return when that scrape was."""
    emitted = sum(recorder.emitted().values())

    def has_seen_all():
        seen = prometheus.at("sum(kvpulse_events_total)")
        return bool(seen) and seen[0].value == emitted

    wait_until(has_seen_all, timeout=60, interval=0.1)
    return prometheus.at('timestamp(kvpulse_source_up{engine="engine-0"})')[0].value


def live_engine(agent):
    [engine] = agent.json("/api/status")["engines"]
    return engine


def test_the_run_is_one_in_which_something_happens(scene):
    gained = {name: scene.after.since(scene.before, name) for name in scene.after.counters}

    for name in (
        "preempted",
        "rejected",
        "cancelled",
        "prefix_hit_tokens",
        "wait_pool_ns",
        "swapped_in",
    ):
        assert gained[name] > 0, name
    assert scene.after.gauges["waiting"] > 0
    assert scene.after.gauges["running"] > 0
    assert scene.after.gauges["logical_blocks"] > scene.after.gauges["active_blocks"]


def test_every_query_of_the_board_shows_the_stores_value(scene):
    seconds = scene.end - scene.start
    expected = expected_values(scene.before, scene.after, seconds)
    wrong = []
    for query in drawn_queries(scene.window):
        if query.name in QUANTILES or query.panel in NOT_OF_THE_STORE:
            continue
        values = expected.pop(query.name)
        shown = {label_of(series): series.value for series in scene.evaluate(query.expr)}
        for label, value in values.items():
            if shown.get(label) != pytest.approx(value, rel=2e-3, abs=1e-9):
                wrong.append((query.name, label, "shown", shown.get(label), "stored", value))
        spare = {label: value for label, value in shown.items() if label not in values and value}
        if spare:
            wrong.append((query.name, "not in the store", spare))

    assert wrong == []
    assert expected == {}  # every value worked out was asked for


def test_what_no_store_says_is_asked_for_in_a_way_that_prometheus_understands(scene):
    asked = {
        query.panel
        for query in drawn_queries("1m")
        if query.panel in NOT_OF_THE_STORE
        # Raises where Prometheus refuses an expression; what it answers depends on the moment.
        and scene.prometheus.between(query.expr, scene.start, scene.end) is not None
    }

    assert asked == NOT_OF_THE_STORE


def test_every_quantile_lies_in_the_bucket_of_the_stores_quantile(scene):
    edges = {metric.name: metric.edges for metric in TABLE}
    checked = set()
    for query in drawn_queries(scene.window):
        if query.name not in QUANTILES:
            continue
        latency, quantile = QUANTILES[query.name]
        [series] = scene.evaluate(query.expr)
        summary = scene.reads.latency_summary(scene.run_key, latency, 0, 2**62)
        name = query.expr.split("rate(")[1].split("_bucket")[0]
        low, high = bucket_around(series.value, edges[name])

        assert low / 1.05 <= getattr(summary, quantile) <= high * 1.05, query.name
        checked.add(query.name)

    assert checked == set(QUANTILES)


def test_every_family_of_the_table_has_a_sample(scene):
    seen = {series.labels["__name__"] for series in scene.evaluate('{__name__=~"kvpulse_.+"}')}

    wanted = {metric.name + "_bucket" if metric.edges else metric.name for metric in TABLE}
    assert wanted - seen <= SOMETIMES_ABSENT


def test_promtool_finds_nothing_to_complain_about_in_a_real_scrape(scene):
    promtool = shutil.which("promtool")
    assert promtool, "comes with prometheus"

    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=scene.agent.text("/metrics"),
        capture_output=True,
        text=True,
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_parts_of_the_queue_time_add_up(scene):
    def total(name):
        [series] = scene.evaluate(f"sum({name})")
        return series.value

    classes = total("kvpulse_wait_seconds_total")
    ended = total("kvpulse_request_queue_time_seconds_sum")

    assert classes >= ended > 0  # the classes also count the waits that still last


def test_the_tenants_blocks_add_up_to_the_active_ones(scene):
    tenants = scene.evaluate("kvpulse_tenant_active_blocks")

    assert len(tenants) == SHAPE.num_tenants
    assert sum(series.value for series in tenants) == scene.after.gauges["active_blocks"]


def label_of(series):
    """The value of a series' only label, or "" for a sum over everything."""
    values = [value for name, value in series.labels.items() if name != "__name__"]
    return values[0] if len(values) == 1 else ""
