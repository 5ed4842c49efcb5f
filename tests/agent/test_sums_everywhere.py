"""Blocks by state are the pool, waits by class are the queue time: exported, and in every row."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.metrics.exporter import exporter_registry
from agent.rollups.scalars import TIERS
from agent.show_pace import SHOW_SECONDS
from agent.store.store import Store
from kvpulse.events import WAIT_CLASSES, WaitCause, WaitClass
from tests.agent.factories_agent import Time
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import SECOND, ToyEngine, record

CLASS_COLUMNS = [f"wait_{each.value}_ns" for each in WaitClass]
WAITS = " + ".join(CLASS_COLUMNS)


@dataclass
class Exported:
    """What one scrape says: the value of each series by name and its one own label."""

    values: dict[tuple[str, str], float]

    def by_label(self, name: str) -> dict[str, float]:
        return {label: value for (of, label), value in self.values.items() if of == name}


def scraped(view: LiveView) -> Exported:
    (engine,) = view.snapshot().engines.values()
    values = {}
    for family in exporter_registry(view, lambda: engine.last_commit_at_ns).collect():
        for sample in family.samples:
            own = [v for k, v in sample.labels.items() if k not in ("engine", "model_name")]
            values[sample.name, " ".join(own)] = sample.value
    return Exported(values)


@pytest.fixture(scope="module", params=[3, 11, 29])
def followed(request, tmp_path_factory) -> Iterator[tuple[list[Exported], sqlite3.Connection]]:
    """A random engine, its agent's scrapes after every few hundred events, and the store.

    A second passes between two turns, so that each scrape sees a picture of its own.
    """
    folder = tmp_path_factory.mktemp("sums")
    where = empty_store(folder)
    record(folder / "journal", request.param, 2500)
    view, scrapes, time = LiveView(1), [], Time()
    config = AgentConfig(journal=folder / "journal", store=where, commit_events=200)
    with Store.open(where) as store:
        loop = AgentLoop(config, store, view, clocks=time.clocks())
        while loop.turn():
            time.seconds += SHOW_SECONDS
            if view.snapshot().engines:
                scrapes.append(scraped(view))
        loop.drain(threading.Event())
    path = Path(where.removeprefix("sqlite:///"))
    connection = sqlite3.connect(path)
    yield scrapes, connection
    connection.close()


def test_exported_states_add_up_to_the_pool_at_each_scrape(followed):
    scrapes, _ = followed
    with_blocks = [each for each in scrapes if each.by_label("kvpulse_kv_blocks")]

    assert len(with_blocks) > 5
    for each in with_blocks:
        states = each.by_label("kvpulse_kv_blocks")
        assert set(states) == {"active", "cached", "free"}
        assert sum(states.values()) == each.values["kvpulse_kv_pool_blocks", ""]
    assert len({tuple(each.by_label("kvpulse_kv_blocks").values()) for each in with_blocks}) > 3


def test_stored_states_add_up_to_the_pool_in_every_row_of_every_tier(followed):
    _, store = followed
    for tier in TIERS:
        good, rows = store.execute(
            "SELECT SUM(active_blocks + cached_blocks + free_blocks = total_blocks), COUNT(*)"
            " FROM rollups WHERE tier_seconds=?",
            (tier,),
        ).fetchone()
        assert good == rows > 0, tier


def test_exported_wait_classes_are_the_sum_of_their_causes_at_each_scrape(followed):
    scrapes, _ = followed
    most = 0.0
    for each in scrapes:
        causes = each.by_label("kvpulse_wait_cause_seconds_total")
        classes = each.by_label("kvpulse_wait_seconds_total")
        assert set(causes) == {cause.name.lower() for cause in WaitCause}
        for wait_class in WaitClass:
            of = [c.name.lower() for c in WaitCause if WAIT_CLASSES[c] is wait_class]
            assert classes[wait_class.value] == pytest.approx(sum(causes[name] for name in of))
        most = max(most, sum(classes.values()))
    assert most > 10


def test_the_wait_classes_are_the_time_of_each_cause_in_every_row(followed):
    _, store = followed
    for tier in TIERS:
        by_class = {}
        query = f"SELECT at_ns, repeats, {WAITS} FROM rollups WHERE tier_seconds=?"
        for at_ns, repeats, waited in store.execute(query, (tier,)):
            for number in range(repeats + 1):  # a row may stand for later ones too
                by_class[at_ns + number * tier * SECOND] = waited
        by_cause = dict.fromkeys(by_class, 0)
        query = "SELECT at_ns, value FROM labelled WHERE family='wait_ns' AND tier_seconds=?"
        for at_ns, waited in store.execute(query, (tier,)):
            by_cause[at_ns] += waited
        assert by_class == by_cause, tier
        assert sum(by_class.values()) > 10 * SECOND


def test_the_wait_classes_of_a_request_are_its_queue_time(followed):
    _, store = followed
    rows = store.execute(
        f"SELECT {WAITS}, COALESCE(admitted_at_ns, ended_at_ns) - arrived_at_ns FROM requests"
        " WHERE spans_gap=0 AND parent=0 AND COALESCE(admitted_at_ns, ended_at_ns) IS NOT NULL"
    ).fetchall()

    assert len(rows) > 20
    assert all(waited == queued for waited, queued in rows)
    assert max(waited for waited, _ in rows) > SECOND


def test_the_rows_of_every_tier_hold_all_that_the_sequences_waited(followed):
    _, store = followed
    (waited,) = store.execute(
        f"SELECT SUM({WAITS} + COALESCE(wait_after_preempt_ns, 0)) FROM requests"
    ).fetchone()
    for tier in TIERS:
        (total,) = store.execute(
            f"SELECT SUM(({WAITS}) * (repeats + 1)) FROM rollups WHERE tier_seconds=?", (tier,)
        ).fetchone()
        assert total == waited


def test_a_wait_that_lasts_is_exported_with_its_cause_age_number_and_seconds(tmp_path):
    engine = ToyEngine(tmp_path / "journal")
    for cause in (WaitCause.POOL, WaitCause.POOL, WaitCause.TENANT_QUOTA):
        sequence = engine.arrive(1)
        engine.wait(sequence, int(cause))
        engine.clock.now_ns += 2 * SECOND
    engine.pool()
    where = empty_store(tmp_path)
    view = LiveView(1)
    with Store.open(where) as store:
        loop = AgentLoop(AgentConfig(journal=tmp_path / "journal", store=where), store, view)
        while loop.turn():
            pass
        said = scraped(view)
        engine.recorder.close()
        loop.close()

    assert said.by_label("kvpulse_num_requests_waiting")["pool"] == 2
    assert said.by_label("kvpulse_oldest_wait_of_cause_seconds") == {
        **{cause.name.lower(): 0.0 for cause in WaitCause},
        **{"pool": 6.0, "tenant_quota": 2.0},
    }
    assert said.values["kvpulse_oldest_wait_seconds", ""] == 6
    seconds = said.by_label("kvpulse_wait_cause_seconds_total")
    assert (seconds["pool"], seconds["tenant_quota"], seconds["batch_slots"]) == (10, 2, 0)
    assert said.by_label("kvpulse_wait_seconds_total") == {
        "pool": 10, "quota": 2, "scheduler": 0, "transfer": 0
    }  # fmt: skip
