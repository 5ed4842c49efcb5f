"""A comparison with its explanation: recordings out of the store, replays, and what they change."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from agent.agent_loop import AgentLoop
from agent.baseline_desk import BaselineDesk
from agent.baselines.errors import RecordingGone
from agent.baselines.why import with_why
from agent.commands import baseline as command
from agent.config import AgentConfig
from agent.http.app import create_app
from agent.http.server import start_http_server
from agent.live_view import LiveView
from agent.reads.recordings import Stretch, record_window
from agent.store.connection import open_for_writing, parse_address
from agent.store.store import Store
from engine.explain.journal_window import record_journal
from engine.simulation.changed_run import Changed, ChangedRun, changed_requests, with_change
from engine.simulation.trace_recording import WALL_START_NS, TraceRun, record_trace
from tests.agent.factories_live import view_of
from tests.agent.factories_store import empty_store

NS = 1_000_000_000
SECONDS = 600


def follow(folder, run, engine, start_ns):
    """Record a run as an engine of that name; return its journal."""
    config = {"journal": folder / "journal", "store": str(folder / "kvpulse.db")}
    traced = record_trace(
        list(changed_requests(run)),
        journal=folder / "journal",
        run=TraceRun(config=run.config, cost=run.cost, wall_start_ns=start_ns),
    )
    with Store.open(config["store"]) as store:
        AgentLoop(AgentConfig(**config), store, LiveView(0)).drain(threading.Event())
    return traced.directory


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a store of one engine: 10 minutes, then 10 minutes of longer ones."""
    folder = tmp_path_factory.mktemp("why")
    path = empty_store(folder)
    calm = ChangedRun(SECONDS, 1)
    journal = follow(folder, calm, "drill", WALL_START_NS)
    follow(folder, with_change(ChangedRun(SECONDS, 2), Changed.LENGTHS), "drill", LATER_NS)
    return path, journal


LATER_NS = WALL_START_NS + 3_600 * NS


def window(start_ns=WALL_START_NS, seconds=SECONDS):
    return Stretch("drill", start_ns, start_ns + seconds * NS)


def test_what_the_store_gives_is_what_the_journal_holds(recorded):
    path, journal = recorded

    stored = record_window(path, window())

    direct = record_journal(journal, start_seconds=0, seconds=SECONDS)
    shift = stored.requests["arrived_ns"][0] - direct.requests["arrived_ns"][0]
    assert stored.num_requests > 400
    for name, values in direct.requests.items():
        found = stored.requests[name]
        is_time = name in ("arrived_ns", "first_token_ns")
        assert np.array_equal(found, np.where(values < 0, values, values + shift * is_time)), name
    assert np.array_equal(stored.hashes, direct.hashes)
    assert all(np.array_equal(stored.steps[name], values) for name, values in direct.steps.items())
    assert stored.fingerprint == direct.fingerprint


def test_a_window_of_which_events_are_gone_is_refused(recorded, tmp_path):
    path = tmp_path / "pruned.db"
    path.write_bytes(Path(recorded[0]).read_bytes())
    engine = open_for_writing(parse_address(str(path)))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM chunks WHERE run_key=1 AND num_records>1"))
    engine.dispose()

    with pytest.raises(RecordingGone, match="not all kept any more"):
        record_window(str(path), window())
    with pytest.raises(RecordingGone, match="nothing was recorded"):
        record_window(str(path), window(WALL_START_NS + 1_800 * NS))
    with pytest.raises(RecordingGone, match="restarted"):
        record_window(str(path), window(WALL_START_NS + 590 * NS, 3_600))


def test_differing_traffic_is_no_longer_in_the_way_once_it_was_replayed(recorded, capsys):
    desk = BaselineDesk(recorded[0])
    server = start_http_server(create_app(view_of(), baselines=desk), host="127.0.0.1", port=0)
    try:
        agent = ["--agent", server.url]
        for name, start_ns in (("calm", WALL_START_NS), ("busy", LATER_NS)):
            desk.save(name, engine=None, last_seconds=590, end_ns=start_ns + SECONDS * NS)
        plain = command.main(["compare", "calm", "busy", "--json", *agent])
        without = json.loads(capsys.readouterr().out)
        command.main(["compare", "calm", "busy", "--why", "--json", *agent])
    finally:
        server.stop()
        desk.close()

    found = json.loads(capsys.readouterr().out)
    why = found["why"]
    assert plain == 4
    assert without["why_unknown"][0].startswith("traffic differs: prompt tokens per request")
    assert why["answer"] == "explained"
    assert why["traffic_ratio"] > 0.8
    assert max(why["shares"], key=lambda share: share["ratio"])["group"] == "lengths"
    assert found["answer"] == found["if_explained"] == found["measured"]
    assert why["text"][-1].startswith("the traffic's share (lengths and arrivals): ")
    assert found["where"]["total"]["change"] == pytest.approx(why["change"]["seconds"], rel=0.3)


def comparison(**said):
    plain = {"answer": "unknown", "if_explained": "worse", "traffic_differences": [{}]}
    return plain | {"why_unknown": ["traffic differs: x"]} | said


def why_of(answer, ratio=0.4):
    return {"answer": answer, "traffic_ratio": ratio, "text": ["why"]}


def test_what_cannot_be_explained_leaves_the_answer_unknown():
    found = with_why(comparison(), why_of("cannot_be_explained"))

    assert found["answer"] == "unknown"
    assert found["why_unknown"] == ["traffic differs: x"]


def test_an_incomplete_side_stays_unknown_whatever_is_explained():
    found = with_why(comparison(if_explained="unknown"), why_of("explained"))

    assert found["answer"] == "unknown"
    assert found["why_unknown"] == ["traffic differs: x"]


def test_the_traffics_share_is_said_where_the_traffic_differs_and_only_there():
    found = with_why(comparison(), why_of("explained"))
    alike = with_why(comparison(answer="same", traffic_differences=[]), why_of("explained"))

    assert found["answer"] == "worse"
    assert found["why_unknown"] == []
    assert found["why"]["text"][-1].endswith("40% of the change")
    assert alike["answer"] == "same"
    assert alike["why"]["text"] == ["why"]
