"""`kvpulse export`: another reader of Parquet finds in the files just what `Reads` answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.reads.models import EngineRow, TenantRow
from agent.reads.reads import Reads, open_reads
from agent.rollups.scalars import COLUMNS, LABELLED, LATENCIES, TIERS
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.postgres import PostgresServer, postgres_server  # noqa: F401 - a fixture

pytest.importorskip("arro3.io", reason="no arro3: the extra `export` has it")
parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow: it comes with Streamlit")

NS = 1_000_000_000


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with one recorded run."""
    folder = tmp_path_factory.mktemp("export")
    if request.param == "sqlite":
        store = empty_store(folder)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = server.database()
    record(folder / "journal", num_requests=40)
    journal = str(folder / "journal")
    assert kvpulse(["agent", "--once", "--journal", journal, "--store", store]) == 0
    return store


@pytest.fixture
def reads(where: str) -> Iterator[Reads]:
    opened = open_reads(where)
    yield opened
    opened.close()


@pytest.fixture
def engine(reads: Reads) -> EngineRow:
    return reads.engines()[0]


@pytest.fixture(scope="module")
def files(where: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables of that store."""
    folder = tmp_path_factory.mktemp("files")
    assert kvpulse(["export", "--store", where, "--out", str(folder)]) == 0
    return folder


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """Read a file back; moments as ns."""
    found = parquet.read_table(folder / f"{table}.parquet")
    for place, field in enumerate(found.schema):
        if str(field.type) == "timestamp[ns, tz=UTC]":
            found = found.set_column(place, field.name, found.column(place).cast("int64"))
    return list(found.to_pylist())


def test_every_sequence_is_there_with_every_value(
    files: Path, reads: Reads, engine: EngineRow
) -> None:
    expected = {row.owner: row for row in reads.requests(engine.run_key, 0, 2**62)}

    found = rows(files, "requests")

    assert [row["owner"] for row in found] == sorted(expected)
    for row in found:
        one = expected[row["owner"]]
        assert (row["engine"], row["run_id"]) == (engine.engine, engine.run_id)
        assert (row["tenant"] or "", row["state"]) == (one.tenant, one.state.value)
        assert json.loads(row["wait_ns"] or "{}") == one.wait_ns
        assert json.loads(row["preempted_by"]) == one.preempted_by
        assert json.loads(row["alloc_failures"]) == one.alloc_failures_by_cause
        assert row["spans_gap"] is one.spans_gap
        for name in one.__slots__:
            plain = name.removesuffix("_ns") if name.endswith("_at_ns") else name
            if plain in row and name not in {"tenant", "state", "wait_ns", "alloc_failures"}:
                value = getattr(one, name)
                assert row[plain] == (value if name != "preempted_by" else json.dumps(value)), name
    assert any(row["reject_reason"] is None for row in found)


def test_every_interval_of_every_tier_is_that_of_the_series(
    files: Path, reads: Reads, engine: EngineRow
) -> None:
    found = rows(files, "rollups")

    assert {row["tier_seconds"] for row in found} == set(TIERS)
    points, end = 2000, (engine.last_event_at_ns or 0) + 1
    for tier in TIERS:
        its = [row for row in found if row["tier_seconds"] == tier]
        series = reads.series(engine.run_key, COLUMNS, engine.started_at_ns, end, points)
        points = len(its) - 1  # too few for this tier: the next coarser one is given
        assert series.tier_seconds == tier
        assert [row["at"] for row in its] == series.t_ns.tolist()
        for name in COLUMNS:
            floats = [np.nan if row[name] is None else float(row[name]) for row in its]
            assert np.array_equal(floats, series.values[name], equal_nan=True), name
    assert any(row["host_active_blocks"] is None for row in found)


def test_latencies_and_labels_are_those_that_the_pages_draw(
    files: Path, reads: Reads, engine: EngineRow
) -> None:
    latencies = [row for row in rows(files, "latencies") if row["tier_seconds"] == 1]
    labelled = [row for row in rows(files, "labelled") if row["tier_seconds"] == 10]
    span = (engine.started_at_ns, (engine.last_event_at_ns or 0) + 1)

    for metric in LATENCIES:
        series = reads.latencies(engine.run_key, metric, *span)
        its = [row for row in latencies if row["metric"] == metric]
        assert [(row["at"], row["count"]) for row in its] == list(
            zip(series.t_ns.tolist(), series.count.tolist(), strict=True)
        )
        assert np.allclose([row["p99_ns"] * 1e-9 for row in its], series.p99)
    assert latencies
    for family in LABELLED:
        sums = reads.labelled(engine.run_key, family.name, *span, 2)
        assert sums.tier_seconds == 10
        for label, values in sums.values.items():
            its = [r for r in labelled if (r["family"], r["label"]) == (family.name, label)]
            assert {row["at"]: row["value"] for row in its if row["value"]} == {
                at: value
                for at, value in zip(sums.t_ns.tolist(), values.tolist(), strict=True)
                if value
            }


def test_runs_tenants_marks_and_totals_are_the_reading_sides(
    files: Path, reads: Reads, engine: EngineRow
) -> None:
    key = engine.run_key
    (run,) = rows(files, "runs")
    tenants, totals = rows(files, "tenants"), rows(files, "totals")

    assert run["last_event_at"] == engine.last_event_at_ns
    assert json.loads(run["fingerprint"]) == dict(engine.fingerprint)
    assert run["events_stored"] == engine.events_stored
    stated = [{n: getattr(t, n) for n in TenantRow.__slots__} for t in reads.tenants(key, 0, 2**62)]
    assert [{n: row[n] for n in TenantRow.__slots__} for row in tenants] == stated
    assert {r["kind"]: (r["stored"], r["lost"]) for r in totals} == reads.totals(key)
    marks = reads.marks(key, 0, 2**62)
    told = [(row["at"], row["kind"], row["text"]) for row in rows(files, "marks")]
    assert told == [(mark.t_ns, mark.kind.value, mark.text) for mark in marks]
    assert told
    assert all(rows(files, name) == [] for name in ("gaps", "leaks", "broken_laws"))


def test_moments_are_typed_and_units_are_in_the_schema(files: Path, where: str) -> None:
    requests = parquet.read_schema(files / "requests.parquet")
    rollups = parquet.read_schema(files / "rollups.parquet")

    assert str(requests.field("arrived_at").type) == "timestamp[ns, tz=UTC]"
    assert str(requests.field("request_hash").type) == "uint64"
    assert str(requests.field("spans_gap").type) == "bool"
    assert requests.field("wait_pool_ns").metadata[b"unit"] == b"ns"
    assert requests.field("wait_ns").metadata[b"format"] == b"json"
    assert requests.field("block_seconds").metadata[b"unit"] == b"block s"
    assert rollups.field("active_block_ns").metadata[b"unit"] == b"block ns"
    assert rollups.field("active_blocks_max").metadata[b"unit"] == b"blocks"
    assert requests.metadata[b"kvpulse.row"].startswith(b"one sequence")
    assert b"kvpulse.version" in requests.metadata


@pytest.mark.parametrize("form", ["last", "since and until"])
def test_a_window_holds_what_the_reading_side_has_in_it(
    tmp_path: Path,
    where: str,
    reads: Reads,
    engine: EngineRow,
    form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    newest = engine.last_event_at_ns or 0
    start, end = newest - 2 * NS, newest - NS
    windows = {
        "last": ["--last", "2s"],
        "since and until": ["--since", f"{start}ns", "--until", "-1s"],
    }
    until = 2**62 if form == "last" else end

    code = kvpulse(
        [
            *("export", "--store", where, "--out", str(tmp_path), "--json", *windows[form]),
            *("--table", "requests,rollups", "--table", "tenants", "--tier", "1"),
        ]
    )

    facts = json.loads(capsys.readouterr().out)
    alive = reads.requests(engine.run_key, start, until)
    series = reads.series(engine.run_key, ("steps",), start, until)
    found = {name: rows(tmp_path, name) for name in ("requests", "rollups", "tenants")}
    assert code == 0
    assert {row["owner"] for row in found["requests"]} == {row.owner for row in alive}
    assert [row["at"] for row in found["rollups"]] == series.t_ns.tolist()
    assert 2 <= len(found["rollups"]) <= 3
    assert len(found["tenants"]) == len(reads.tenants(engine.run_key, start, until))
    assert [(file["table"], file["rows"]) for file in facts["files"]] == [
        (name, len(found[name])) for name in ("requests", "rollups", "tenants")
    ]
    assert facts["rows"] == sum(len(its) for its in found.values())
    for file in facts["files"]:
        assert file["bytes"] == Path(file["path"]).stat().st_size
    assert (facts["start_ns"], facts["end_ns"]) == (start, until)
    assert [run["run_id"] for run in facts["runs"]] == [engine.run_id]
