"""The same journal into Postgres and into SQLite gives the same rows and the same answers."""

from pathlib import Path

import pytest
from sqlalchemy import text

from agent.reads.models import EngineRow
from agent.reads.reads import Reads, open_reads
from agent.rollups.scalars import COLUMNS, LABELLED, LATENCIES
from agent.store.schema import metadata
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.agent.stored_rows import all_rows
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.postgres


@pytest.fixture
def stores(tmp_path: Path, postgres_url: str) -> tuple[str, str]:  # noqa: F811
    record(tmp_path / "journal", num_requests=60)
    both = (empty_store(tmp_path), postgres_url)
    for store in both:
        journal = str(tmp_path / "journal")
        assert kvpulse(["agent", "--once", "--journal", journal, "--store", store]) == 0
    return both


def test_every_table_is_equal(stores: tuple[str, str]) -> None:
    in_sqlite, in_postgres = (all_rows(store) for store in stores)

    for name in metadata.tables:
        assert in_postgres[name] == in_sqlite[name], name
    filled = {name for name, rows in in_sqlite.items() if rows}
    assert filled >= {"runs", "positions", "chunks", "snapshots", "rollups", "latencies"}
    assert filled >= {"labelled", "requests", "kind_totals", "strings", "configs"}


def answers(reads: Reads, engine: EngineRow) -> list[object]:
    key, start = engine.run_key, engine.started_at_ns
    end = engine.last_event_at_ns or start
    series = reads.series(key, COLUMNS, start, end)
    blocks = [reads.block_map(key, start + (end - start) * i // 7) for i in range(8)]
    owners = [row.owner for row in reads.requests(key, start, end, limit=5, order="wait")]
    return [
        engine,
        [(name, values.tolist()) for name, values in series.values.items() if name != "filled"],
        [reads.latency_summary(key, name, start, end) for name in LATENCIES],
        [reads.labelled(key, f.name, start, end).values.keys() for f in LABELLED],
        [(b.state.tolist(), b.owners, b.exact) if b else None for b in blocks],
        reads.requests(key, start, end),
        [reads.request_events(key, owner) for owner in owners],
        reads.marks(key, start, end + 1),
        reads.totals(key),
        reads.gaps(key),
        reads.leaks(key),
        reads.runs(engine.engine),
        [reads.usage(key), reads.leak_report(key), reads.head_of_line(key)],
        reads.tenants(key, start, end),
    ]


def test_every_question_has_the_same_answer(stores: tuple[str, str]) -> None:
    found = []
    for store in stores:
        reads = open_reads(store)
        found.append(answers(reads, reads.engines()[0]))
        health = reads.telemetry(1)
        assert health.store_bytes > health.chunk_bytes > 0
        reads.close()

    for one, two in zip(*found, strict=True):
        assert repr(one) == repr(two)


def test_reading_cannot_write(stores: tuple[str, str]) -> None:
    for store in stores:
        reads = open_reads(store)
        with (
            pytest.raises(Exception, match=r"read-only|readonly"),
            reads._engine.begin() as connection,
        ):
            connection.execute(text("DELETE FROM runs"))
        reads.close()
