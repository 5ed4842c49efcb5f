"""The role for dashboards reads everything and changes nothing, whatever it sets or tries."""

import re
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from agent.reads.reads import open_reads
from agent.store.schema import metadata
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from tests.agent.simulated_writer import record
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
READER_SQL = (ROOT / "docker/postgres/reader.sql").read_bytes()


def make_reader(url: str) -> str:
    """Run the script as its head says; return the reader's URL."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(READER_SQL)
    return url.replace("//kvpulse@", "//kvpulse_reader@")


@pytest.fixture(params=["before the tables", "after the tables"])
def stored(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> tuple[str, str]:  # noqa: F811
    """A store with a run in it, for the writer and for the reader."""
    if request.param == "before the tables":
        reader = make_reader(postgres_url)
    record(tmp_path / "journal", num_requests=20)
    arguments = ["--once", "--journal", str(tmp_path / "journal"), "--store", postgres_url]
    assert kvpulse(["agent", *arguments]) == 0
    if request.param == "after the tables":
        make_reader(postgres_url)
        reader = make_reader(postgres_url)  # again changes nothing
    return postgres_url, reader


def test_it_reads_every_table_and_answers_every_page(stored: tuple[str, str]) -> None:
    _, reader = stored
    with psycopg.connect(reader.replace("+psycopg", "")) as connection:
        for name in (*metadata.tables, "alembic_version"):
            connection.execute(f"SELECT * FROM {name} LIMIT 1".encode())

    reads = open_reads(reader)
    (engine,) = reads.engines()
    assert reads.telemetry(engine.run_key).store_bytes > 0
    assert reads.block_map(engine.run_key) is not None
    reads.close()


def test_it_changes_nothing_even_where_it_turns_its_settings_off(stored: tuple[str, str]) -> None:
    writer, reader = stored
    with psycopg.connect(reader.replace("+psycopg", ""), autocommit=True) as connection:
        with pytest.raises(errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM runs")
        connection.execute("SET default_transaction_read_only = off")
        for statement in (
            "DELETE FROM runs",
            "INSERT INTO strings VALUES (1, 1, 'x')",
            "UPDATE positions SET seq = 0",
            "TRUNCATE chunks",
            "DO $$ BEGIN LOCK TABLE runs IN ACCESS EXCLUSIVE MODE; END $$",
            "CREATE TABLE mine (a int)",
            "CREATE TEMPORARY TABLE mine (a int)",
            "DROP TABLE runs",
            "COPY runs TO PROGRAM 'true'",
            "SELECT pg_read_file('/etc/passwd')",
            "SET ROLE kvpulse",
        ):
            with pytest.raises((errors.InsufficientPrivilege, errors.InvalidParameterValue)):
                connection.execute(statement.encode())

    with Store.open(writer) as store, store._engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM runs").scalar() == 1


def test_a_statement_of_it_ends_after_thirty_seconds(stored: tuple[str, str]) -> None:
    with psycopg.connect(stored[1].replace("+psycopg", "")) as connection:
        row = connection.execute("SHOW statement_timeout").fetchone()
    assert row == ("30s",)


def test_the_queries_of_the_page_about_grafana_run_as_the_reader(stored: tuple[str, str]) -> None:
    page = (ROOT / "docs/grafana.md").read_text()
    queries = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(queries) >= 3
    with psycopg.connect(stored[1].replace("+psycopg", "")) as connection:
        for query in queries:
            query = query.replace("$__unixEpochNanoFilter(at_ns)", "at_ns > 0")
            query = query.replace("$__unixEpochNanoFilter(arrived_at_ns)", "arrived_at_ns > 0")
            assert "$__" not in query
            assert connection.execute(query.encode()).fetchone() is not None, query
