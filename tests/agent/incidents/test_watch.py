"""The agent's watch: one condition is one incident, whatever happens to the agent meanwhile."""

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from agent.errors import StoreUnwritable
from agent.incidents.watch import IncidentWatch
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.metrics.exporter import exporter_registry
from agent.reads.incidents import IncidentFilter
from agent.store.connection import open_for_writing, parse_address
from agent.store.incidents import IncidentWriter
from agent.triage.incidents import Change, CloseReason
from agent.triage.verdicts import Verdict
from tests.agent.incidents.factories_watch import ENGINE

NS = 1_000_000_000


def told(engine):
    return [(each.change, each.incident.verdict) for each in engine.changes]


def lasting(engine):
    return [each for each in told(engine) if each[0] is not Change.UPDATED]


def samples(engine):
    """Return the samples of triage as a scrape gives them."""
    registry = exporter_registry(LiveView(0), lambda: engine.now_ns, incidents=engine.board)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, sample.labels["verdict"]): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_condition_opens_one_incident_and_closes_it_a_minute_after_it_was_seen_last(
    watched, tmp_path
):
    with watched(tmp_path, "stall") as (engine, reads):
        engine.run_to(30)
        before = samples(engine)
        engine.run_to(70)
        during, (row,) = samples(engine), reads.incidents()
        engine.run_to(150)
        after, (closed,) = samples(engine), reads.incidents()

        opened = [each.incident for each in engine.changes if each.change is Change.OPENED]

    assert before["kvpulse_incidents_open", "stalled"] == 0
    assert before["kvpulse_incidents_total", "stalled"] == 0
    assert before["kvpulse_verdict", "healthy"] == 1
    assert ("kvpulse_incidents_open", "healthy") not in before
    assert during["kvpulse_incidents_open", "stalled"] == 1
    assert during["kvpulse_verdict", "stalled"] == 1
    assert sum(v for (name, _), v in during.items() if name == "kvpulse_verdict") == 1
    assert (row.verdict, row.action, row.is_open) == ("stalled", "restart", True)
    assert after["kvpulse_incidents_open", "stalled"] == 0
    assert after["kvpulse_incidents_total", "stalled"] == 1
    assert lasting(engine) == [(Change.OPENED, "stalled"), (Change.CLOSED, "stalled")]
    assert [incident.key for incident in opened] == [row.key]
    assert (closed.key, closed.close_reason) == (row.key, CloseReason.CLEARED)
    assert closed.closed_at_ns == closed.seen_at_ns > row.opened_at_ns
    assert engine.changes[-1].incident.closed_at_ns == closed.closed_at_ns


def test_an_open_incident_goes_on_after_a_restart_of_the_agent(watched, tmp_path):
    with watched(tmp_path, "stall") as (engine, reads):
        engine.run_to(70)
        (before,) = reads.incidents()
        engine.start_watch()
        engine.run_to(80)
        (resumed,) = reads.incidents()
        engine.start_watch()
        engine.run_to(150)
        (after,) = reads.incidents()

    assert (resumed.key, resumed.is_open) == (before.key, True)
    assert (after.key, after.close_reason) == (before.key, CloseReason.CLEARED)
    assert lasting(engine) == [(Change.OPENED, "stalled"), (Change.CLOSED, "stalled")]
    assert engine.shown.opened == {"stalled": 1}


def test_an_incident_that_cleared_while_no_agent_was_there_ends_when_it_was_seen_last(
    watched, tmp_path
):
    with watched(tmp_path, "stall") as (engine, reads):
        engine.run_to(70)
        (before,) = reads.incidents()
        engine.start_watch()
        engine.run_to(140, looks=False)
        engine.run_to(150)
        (after,) = reads.incidents()

    assert (after.key, after.closed_at_ns) == (before.key, before.seen_at_ns)


def test_an_incident_ends_with_its_engine(watched, tmp_path):
    with watched(tmp_path, "leak") as (engine, reads):
        engine.run_to(130)
        (row,) = reads.incidents()
        (run,) = reads.runs(ENGINE)

    assert lasting(engine) == [(Change.OPENED, "pool_leak"), (Change.CLOSED, "pool_leak")]
    assert (row.close_reason, row.closed_at_ns) == ("engine_ended", run.last_event_at_ns)
    assert engine.shown.verdict is None


def test_an_incident_of_an_engine_that_ended_while_no_agent_was_there_is_closed(watched, tmp_path):
    with watched(tmp_path, "leak") as (engine, reads):
        engine.run_to(80)
        assert reads.incidents()[0].is_open
        engine.run_to(130, looks=False)
        alone = IncidentWatch(
            str(tmp_path / "kvpulse.db"),
            LiveView(0),  # it follows nobody: the run has ended
            engine.board,
            OncePerHour(lambda: 0.0),
            journal=tmp_path / "journal",
            listeners=[engine.listener],
            wall_clock=lambda: engine.now_ns,
        )
        alone.look()
        alone.close()
        (row,) = reads.incidents()

    assert row.close_reason == CloseReason.ENGINE_ENDED
    assert told(engine)[-1] == (Change.CLOSED, "pool_leak")
    assert engine.shown.open == frozenset()


def test_evidence_is_rewritten_once_a_minute(watched, tmp_path):
    with watched(tmp_path, "leak") as (engine, reads):
        engine.run_to(120)
        (row,) = reads.incidents()
        stored = reads.incident(row.key)

    updates = [each.incident for each in engine.changes if each.change is Change.UPDATED]
    assert len(updates) == 1
    assert stored.row.updated_at_ns - stored.opening.end_ns >= 60 * NS
    leaked = {e.name: e.value for e in stored.finding.evidence}["leaked_blocks"]
    first = {e.name: e.value for e in stored.opening.headline.evidence}["leaked_blocks"]
    assert set(first) < set(leaked)
    assert stored.finding == updates[0].finding


def test_what_the_store_does_not_take_is_stored_later_and_told_only_then(
    watched, tmp_path, monkeypatch, caplog
):
    def refuse(*_, **__):
        raise StoreUnwritable("kvpulse.db", "disk is full")

    with watched(tmp_path, "stall") as (engine, reads):
        engine.run_to(30)
        with monkeypatch.context() as patched:
            patched.setattr(IncidentWriter, "write", refuse)
            engine.run_to(70)
        assert (reads.incidents(), engine.changes, engine.shown.open) == ([], [], frozenset())
        engine.run_to(80)
        (row,) = reads.incidents()

    assert told(engine) == [(Change.OPENED, "stalled")]
    assert row.opened_at_ns == engine.changes[0].incident.opened_at_ns
    assert row.seen_at_ns - row.opened_at_ns >= 20 * NS
    assert caplog.text.count("disk is full") == 1


def test_a_listener_that_fails_stops_neither_the_watch_nor_the_other_listeners(
    watched, tmp_path, caplog
):
    with watched(tmp_path, "stall") as (engine, reads):
        heard = []

        def fail(change):
            heard.append(change.change)
            raise RuntimeError("no way through")

        engine.listener = fail
        engine.run_to(150)

        assert reads.incidents()[0].close_reason == CloseReason.CLEARED
    assert heard == [Change.OPENED, Change.CLOSED]
    assert caplog.text.count("RuntimeError: no way through") == 1


def test_two_agents_that_judge_the_same_engine_keep_one_incident(watched, tmp_path):
    with watched(tmp_path, "leak") as (engine, reads):
        engine.run_to(30)
        first = engine.watch
        other = engine.start_watch()
        for seconds in range(40, 140, 10):
            engine.watch = first
            engine.run_to(seconds)
            other.look()
        rows = reads.incidents()
        first.close()

    assert [(row.verdict, row.close_reason) for row in rows] == [("pool_leak", "engine_ended")]
    assert lasting(engine) == [(Change.OPENED, "pool_leak"), (Change.CLOSED, "pool_leak")]


def test_a_broken_law_that_stays_broken_is_one_incident_for_as_long(watched, tmp_path):
    with watched(tmp_path, "stall") as (engine, reads):
        engine.run_to(10)
        begun_ns = engine.now_ns - 600 * NS  # long before the time that is looked back on
        (run,) = reads.runs(ENGINE)
        writer = open_for_writing(parse_address(str(tmp_path / "kvpulse.db")))
        with writer.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO broken_laws VALUES (:key, 'audit', :at, NULL, '3', '2', '[7]', 1,"
                    " '[]', 0)"
                ),
                {"key": run.run_key, "at": begun_ns},
            )
        engine.run_to(30)
        (row,) = reads.incidents()
        engine.start_watch()
        engine.run_to(40)
        assert [row.key] == [each.key for each in reads.incidents(IncidentFilter(is_open=True))]
        with writer.begin() as connection:
            query = text("UPDATE broken_laws SET closed_at_ns=opened_at_ns+1")
            connection.execute(query)
        writer.dispose()
        engine.run_to(110)
        broken = [each for each in reads.incidents() if each.verdict == Verdict.LEDGER_BROKEN]

    assert "audit: 2, expected 3; blocks 7" in row.summary
    assert [(each.key, each.close_reason) for each in broken] == [(row.key, "cleared")]
