"""The bench records, checks against plain loops, measures, and says what it found."""

import json

import pytest

from agent.commands.bench_ingest import differences, main
from agent.errors import ConfigError
from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from agent.ledger.plain_ledger import PlainLedger
from tests.agent.factories_ledger import follow, plain
from tests.agent.factories_stream import record
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


def test_a_recorded_journal_is_measured_and_equals_the_plain_ledger(tmp_path, capsys):
    record(tmp_path, 3, 400)

    code = main(["--journal", str(tmp_path), "--json"])

    figures = json.loads(capsys.readouterr().out)
    assert code == 0
    assert figures["differences"] == []
    assert figures["events"] == figures["checked_events"] > 300
    assert figures["audits_passed"] > 0 == figures["audits_failed"] == figures["laws_failed"]
    assert figures["events_per_cpu_second"] > 1000
    assert figures["bytes_per_event"] <= figures["bytes_per_event_with_hashes"]
    assert figures["peak_rss_mb"] > 20


def test_a_ledger_that_went_astray_is_told_by_name(tmp_path):
    stream = record(tmp_path, 5, 300)
    ledger, _ = follow(stream)
    slow = plain(stream, 24)
    assert differences(ledger, slow) == []

    ledger.core.blocks.count[0] += 1
    slow.per_kind[1] += 1

    assert {"counts", "events per kind"} <= set(differences(ledger, slow))


def test_two_empty_ledgers_are_equal():
    assert differences(Ledger(RunShape(4, 0, 16)), PlainLedger(4, 0)) == []


def test_a_journal_without_streams_cannot_be_measured(tmp_path, capsys):
    assert main(["--journal", str(tmp_path)]) == 3
    assert "no stream" in capsys.readouterr().err


@pytest.mark.slow
def test_the_seeded_workload_is_recorded_and_measured(capsys):
    code = main(["--trace", "workload", "--seconds", "20", "--json"])

    figures = json.loads(capsys.readouterr().out)
    assert (code, figures["differences"], figures["audits_failed"]) == (0, [], 0)
    assert figures["events"] > 1000


@pytest.mark.postgres
def test_postgres_is_measured_beside_sqlite_and_only_where_it_is_empty(
    tmp_path,
    capsys,
    postgres_url,  # noqa: F811
):
    record(tmp_path, 3, 400)
    arguments = ["--journal", str(tmp_path), "--postgres", postgres_url, "--json"]

    assert main(arguments) == 0

    figures = json.loads(capsys.readouterr().out)
    assert figures["events_postgres"] == figures["events"] > 300
    assert figures["events_per_cpu_second_postgres"] > 1000
    assert figures["bytes_per_event_with_hashes_postgres"] > 0
    with pytest.raises(ConfigError, match="this one has runs"):
        main(arguments)
    with pytest.raises(ConfigError, match="accepted is postgresql://"):
        main(["--journal", str(tmp_path), "--postgres", str(tmp_path / "kvpulse.db")])
