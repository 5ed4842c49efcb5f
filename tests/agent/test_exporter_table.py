"""The metrics table itself, its page, and what Prometheus' own checker says of a scrape."""

import shutil
import subprocess
from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from agent.exhaustion import Exhaustion
from agent.metrics import capacity as capacity_metrics
from agent.metrics import sharing as sharing_metrics
from agent.metrics import table as metrics
from agent.metrics.exporter import exporter_registry
from agent.metrics.metric import Metric, MetricKind
from agent.metrics.page import PAGE, page
from agent.price import Price
from agent.rollups.scalars import GAUGES
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, live_state, view_of


def full_engine():
    """An engine that measured everything."""
    gauges = dict.fromkeys(GAUGES, 5)
    tenants = {1: "chat"}
    families = ("tenant_block_ns", "tenant_tokens", "tenant_active_blocks")
    live = live_state(
        gauges=gauges,
        tenants=tenants,
        labelled={family: {"chat": 1} for family in families},
        host_active_blocks=2,
        host_total_blocks=8,
        host_unreleased={},
        largest_blocks_needed=3,
    )
    said = {"model": "smollm2", "bytes_per_token": 46_080}
    return live_engine(live, fingerprint=said, exhaustion=Exhaustion(1.0, 2.0))


def test_every_declared_metric_stands_in_the_table_once():
    modules = (vars(metrics), vars(sharing_metrics), vars(capacity_metrics))
    declared = [value for names in modules for value in names.values() if isinstance(value, Metric)]

    assert sorted(m.name for m in declared) == sorted(m.name for m in metrics.TABLE)
    assert len({m.name for m in metrics.TABLE}) == len(metrics.TABLE)


def test_an_engine_that_measured_everything_fills_every_family():
    registry = exporter_registry(view_of(full_engine()), lambda: NOW_NS, Price(2.0))

    filled = {family.name for family in registry.collect() if family.samples}

    assert filled == {m.family_name for m in metrics.TABLE}


def test_names_follow_the_rules():
    for metric in metrics.TABLE:
        assert metric.name.startswith("kvpulse_")
        assert (metric.kind is MetricKind.COUNTER) == metric.name.endswith("_total")
        assert not metric.name.endswith(("_pct", "_percent", "_ms", "_count"))
        assert list(metric.edges) == sorted(set(metric.edges))
        assert bool(metric.edges) == (metric.kind is MetricKind.HISTOGRAM)


def test_usage_states_that_it_counts_referenced_blocks_only():
    assert "do not count as used" in metrics.KV_CACHE_USAGE.help


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text("utf-8") == page()


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_complain_about():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    engines = (full_engine(), replace(full_engine(), engine="engine-1", started_at_ns=SECOND))
    text = generate_latest(exporter_registry(view_of(*engines), lambda: NOW_NS))

    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout + checked.stderr == b""
