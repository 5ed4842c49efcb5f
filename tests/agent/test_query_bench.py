"""The bench of questions fills a store, asks it, and refuses to time a wrong answer."""

import json

import pytest

from agent.commands import bench_query
from agent.commands.bench_query import main
from agent.commands.bench_query_ask import Asker, WrongAnswerError
from agent.commands.bench_query_history import write_history
from agent.errors import ConfigError
from agent.rollups.scalars import LATENCIES
from agent.store.store import Store
from tests.agent.factories_store import empty_store
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

SMALL = ("--days", str(1 / 24), "--busy-seconds", "2", "--moments", "2", "--json")


def test_an_hour_of_history_and_two_busy_seconds_are_asked_for(capsys):
    code = main(SMALL)

    figures = json.loads(capsys.readouterr().out)
    assert code == 0
    assert figures["rollup_rows"] == 3600 + 360 + 60 + 1 + (60 + 1) * len(LATENCIES)
    assert figures["block_map_p95_ms"] == max(
        figures["block_map_2k_p95_ms"], figures["block_map_20k_p95_ms"]
    )
    assert figures["block_map_20k_events_per_second"] > figures["block_map_2k_events_per_second"]
    assert figures["month_at_1h_cpu_ms"] > 0
    assert 0 < figures["day_at_1m_ms"] <= figures["day_at_1m_p95_ms"]


def test_a_store_that_gives_back_something_else_is_not_timed(tmp_path):
    where = empty_store(tmp_path)
    with Store.open(where) as store:
        history = write_history(store, hours=2, seed=1)
    asker = Asker(where, seed=1)

    assert len(asker.series(history, 1, 3)) == 3
    with pytest.raises(WrongAnswerError, match="arrived"):
        asker.series(history._replace(arrived_per_hour=1), 1, 1)


def test_a_wrong_answer_ends_it_with_1(monkeypatch, capsys):
    def measure(*_):
        raise WrongAnswerError("arrived: 1, not 2")

    monkeypatch.setattr(bench_query, "record_load", lambda *_, **__: None)
    monkeypatch.setattr(bench_query, "measure", measure)

    assert main(SMALL) == 1
    assert "wrong answer: arrived: 1, not 2" in capsys.readouterr().err


@pytest.mark.postgres
def test_postgres_is_asked_beside_sqlite_and_only_where_it_is_empty(
    capsys,
    postgres_url,  # noqa: F811
):
    arguments = [*SMALL, "--postgres", postgres_url]

    assert main(arguments) == 0

    figures = json.loads(capsys.readouterr().out)
    assert figures["rollup_rows_postgres"] == figures["rollup_rows"]
    for name in ("block_map_p95_ms", "day_at_1m_ms", "month_at_1h_ms"):
        assert figures[name + "_postgres"] > 0
    with pytest.raises(ConfigError, match="this one has runs"):
        main(arguments)
