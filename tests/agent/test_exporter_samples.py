"""What the exporter says about one engine, and what it keeps to itself."""

import pytest

from agent.ledger.delta import Leak, WaitNow
from agent.metrics.exporter import exporter_registry
from agent.metrics.metric import MetricKind
from agent.metrics.table import TABLE
from agent.reads.models import RunState
from kvpulse.events import Kind, RejectReason
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, live_state, per_kind, view_of

BASE = {"engine": "engine-0", "model_name": "smollm2"}


def scrape(*engines):
    registry = exporter_registry(view_of(*engines), lambda: NOW_NS)
    return lambda name, **labels: registry.get_sample_value(name, {**BASE, **labels})


def test_block_states_add_up_to_the_pool():
    gauges = {"active_blocks": 40, "cached_blocks": 14, "free_blocks": 10, "total_blocks": 64}

    value = scrape(live_engine(live_state(gauges=gauges)))

    states = [value("kvpulse_kv_blocks", state=s) for s in ("active", "cached", "free")]
    assert states == [40, 14, 10]
    assert sum(states) == value("kvpulse_kv_pool_blocks") == 64
    assert value("kvpulse_kv_cache_usage_ratio") == 40 / 64


def test_cached_blocks_do_not_count_as_used():
    gauges = {"active_blocks": 0, "cached_blocks": 64, "free_blocks": 0, "total_blocks": 64}

    assert scrape(live_engine(live_state(gauges=gauges)))("kvpulse_kv_cache_usage_ratio") == 0


def test_a_gauge_nobody_measured_is_absent_and_not_zero():
    value = scrape(live_engine(live_state(gauges={"filled_slots": None, "active_blocks": 0})))

    assert value("kvpulse_kv_filled_slots") is None
    assert value("kvpulse_kv_blocks", state="active") == 0
    assert value("kvpulse_kv_blocks", state="cached") is None


def test_every_reason_is_there_before_the_first_rejection():
    value = scrape(live_engine(live_state(labelled={"rejected": {"queue_full": 3}})))

    reasons = {
        r.name.lower(): value("kvpulse_admission_rejections_total", reason=r.name.lower())
        for r in RejectReason
    }
    assert reasons.pop("queue_full") == 3
    assert set(reasons.values()) == {0}


@pytest.mark.parametrize(
    "gone",
    [
        {"state": RunState.FINISHED},
        {"state": RunState.DEAD},
        {"last_commit_at_ns": NOW_NS - 11 * SECOND},
    ],
    ids=["finished", "dead", "silent"],
)
def test_a_stale_engine_keeps_its_counters_and_loses_its_gauges(gone):
    live = live_state(gauges={"active_blocks": 40}, counters={"preempted": 7})

    value = scrape(live_engine(live, **gone))

    assert value("kvpulse_source_up") == 0
    assert value("kvpulse_source_age_seconds") >= 0.1
    assert value("kvpulse_num_preemptions_total") == 7
    assert value("kvpulse_kv_blocks", state="active") is None
    assert value("kvpulse_oldest_wait_seconds") is None


def test_one_engine_going_stale_leaves_the_others_gauges():
    live = live_state(gauges={"running": 3})
    view = view_of(live_engine(live), live_engine(live, engine="engine-1", state=RunState.DEAD))
    registry = exporter_registry(view, lambda: NOW_NS)

    def running(engine):
        labels = {"engine": engine, "model_name": "smollm2"}
        return registry.get_sample_value("kvpulse_num_requests_running", labels)

    assert running("engine-0") == 3
    assert running("engine-1") is None


def test_the_oldest_wait_is_counted_from_where_it_began_and_not_from_its_present_cause():
    waits = {"pool": WaitNow(2, 99 * SECOND), "batch_slots": WaitNow(1, 99 * SECOND)}

    value = scrape(live_engine(live_state(waits=waits, waiting_since_ns=97 * SECOND)))

    assert value("kvpulse_oldest_wait_seconds") == 3
    assert value("kvpulse_num_requests_waiting", cause="pool") == 2


def test_nobody_waiting_is_an_oldest_wait_of_zero():
    assert scrape(live_engine())("kvpulse_oldest_wait_seconds") == 0


def test_waits_are_seconds_by_class():
    counters = {"wait_pool_ns": 1_500_000_000, "wait_scheduler_ns": 250_000_000}

    value = scrape(live_engine(live_state(counters=counters)))

    assert value("kvpulse_wait_seconds_total", **{"class": "pool"}) == 1.5
    assert value("kvpulse_wait_seconds_total", **{"class": "scheduler"}) == 0.25
    assert value("kvpulse_wait_seconds_total", **{"class": "quota"}) == 0


def test_a_refused_request_ends_as_rejected():
    live = live_state(labelled={"finished": {"stop": 4}}, counters={"rejected": 2})

    value = scrape(live_engine(live))

    assert value("kvpulse_requests_finished_total", reason="rejected") == 2
    assert value("kvpulse_requests_finished_total", reason="stop") == 4


def test_events_and_losses_are_told_per_kind():
    live = live_state(stored=per_kind({Kind.ALLOCATE: 90}), lost=per_kind({Kind.ALLOCATE: 10}))

    value = scrape(live_engine(live))

    assert value("kvpulse_events_total", kind="allocate") == 90
    assert value("kvpulse_events_lost_total", kind="allocate") == 10
    assert value("kvpulse_events_lost_total", kind="free") == 0


def test_a_block_leaked_by_two_owners_is_one_leaked_block():
    leaks = (Leak(5, 1, 0), Leak(5, 2, 0), Leak(9, 2, 0))

    assert scrape(live_engine(live_state(leaks=leaks)))("kvpulse_kv_leaked_blocks") == 2


def test_a_run_found_ended_is_as_old_as_its_last_event():
    found = live_engine(
        state=RunState.DEAD, last_commit_at_ns=0, last_event_at_ns=NOW_NS - 90 * SECOND
    )

    assert scrape(found)("kvpulse_source_age_seconds") == 90


def test_a_lag_that_nobody_measured_is_absent():
    assert scrape(live_engine(lag_seconds=None))("kvpulse_journal_lag_seconds") is None


def test_tenants_beyond_the_cap_are_folded_and_nothing_is_dropped():
    tenants = {key: f"tenant-{key:03d}" for key in range(1, 81)}
    spent = dict.fromkeys(tenants.values(), 2 * SECOND)

    value = scrape(live_engine(live_state(tenants=tenants, labelled={"tenant_block_ns": spent})))

    assert value("kvpulse_tenant_block_seconds_total", tenant="tenant-050") == 2
    assert value("kvpulse_tenant_block_seconds_total", tenant="tenant-051") is None
    assert value("kvpulse_tenant_block_seconds_total", tenant="other") == 60


def test_a_tenant_that_appears_later_never_pushes_an_earlier_one_out():
    def other_of(num_tenants):
        tenants = {key: f"tenant-{key:03d}" for key in range(1, num_tenants + 1)}
        # The newest spend most: a choice by size would change from scrape to scrape.
        spent = {alias: key * SECOND for key, alias in tenants.items()}
        value = scrape(
            live_engine(live_state(tenants=tenants, labelled={"tenant_block_ns": spent}))
        )
        return value("kvpulse_tenant_block_seconds_total", tenant="tenant-001")

    assert other_of(50) == other_of(120) == 1


def test_no_label_takes_an_unbounded_value():
    bounded = {"state", "cause", "class", "reason", "part", "kind", "result", "tenant"}
    bounded |= {"priority", "attempt", "mode", "direction", "outcome", "scope", "bound"}
    labels = {name for m in TABLE if m.kind is not MetricKind.INFO for name in m.labels}

    assert labels <= bounded
