"""`kvpulse export`: files appear whole, private and never over another; what fails says why."""

import json
import os
import sqlite3
import sys
from pathlib import Path

import pytest

import agent.export.parquet as export_parquet
from agent.errors import ExportInTheWay, ExportUnwritable
from agent.export.private_file import PrivateFile
from agent.export.tables import TABLES, Span
from agent.reads import pages
from agent.reads.reads import open_reads
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    progress,
    request,
    rollup,
)

pytest.importorskip("arro3.io", reason="no arro3: the extra `export` has it")
parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow: it comes with Streamlit")

HOSTILE = "\x1b[31m<img src=x>'\"\n\r\\{}%n|" + "я" * 40


@pytest.fixture
def where(tmp_path: Path) -> str:
    return empty_store(tmp_path)


def fill(where: str, **changes: object) -> None:
    with Store.open(where) as store:
        given = {"t_ns": 100 * NS, "chunks": (chunk(0, 1),), **changes}
        store.writer(STREAM).commit(delta(1, **given), SHAPE, progress(1))


def export(where: str, out: Path, *arguments: str) -> int:
    return kvpulse(["export", "--store", where, "--out", str(out), *arguments])


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_files_and_folder_are_for_their_owner_alone_and_nothing_else_is_left(
    where: str, tmp_path: Path
) -> None:
    fill(where)
    out = tmp_path / "deep" / "out"

    assert export(where, out) == 0

    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert {path.suffix for path in out.iterdir()} == {".parquet"}


def test_a_file_that_is_there_is_never_replaced_unless_told(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(where, requests=(request(1),))
    there = tmp_path / "requests.parquet"
    there.write_text("mine")

    assert export(where, tmp_path) == 2
    message = told(capsys)
    assert str(there) in message
    assert "--force" in message
    assert there.read_text() == "mine"
    assert not (tmp_path / "runs.parquet").exists()

    assert export(where, tmp_path, "--force") == 0
    assert parquet.read_table(there).num_rows == 1


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    with PrivateFile(path, replace=False) as file:
        file.write(b"ours")
        path.write_text("theirs")
        with pytest.raises(ExportInTheWay, match="is there already"):
            file.publish()

    assert [each.name for each in tmp_path.iterdir()] == ["requests.parquet"]
    assert path.read_text() == "theirs"


def test_a_full_disk_is_said_and_leaves_no_file(where: str, tmp_path: Path) -> None:
    fill(where, requests=tuple(request(owner) for owner in range(1, 50)))
    reads = open_reads(where)
    path = tmp_path / "out.parquet"
    with PrivateFile(path, replace=False) as file:
        file._file.close()
        file._file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", buffering=0)
        writer = export_parquet.TableExport(
            reads, TABLES["requests"], Span(), on_rows=lambda _: None
        )
        with pytest.raises(ExportUnwritable, match=r"No space left on device.*--out"):
            writer.write(reads.runs("engine-a"), file, {})
    reads.close()

    assert not path.exists()
    assert list(tmp_path.glob("*.partial")) == list(tmp_path.glob(".*.partial")) == []


def test_a_value_that_no_agent_writes_is_named_and_leaves_no_file(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(where, requests=(request(1), request(2)))
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE requests SET prompt_tokens='many' WHERE owner=2")

    assert export(where, tmp_path / "out", "--table", "requests") == 3

    assert "requests.prompt_tokens holds what is no integer" in told(capsys)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(where)
    (tmp_path / "file").write_text("")

    assert export(where, tmp_path / "file" / "out") == 3
    assert "choose another --out" in told(capsys)


def test_without_its_packages_it_says_what_to_install(
    where: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(where)
    monkeypatch.delitem(sys.modules, "agent.export.parquet")
    monkeypatch.setitem(sys.modules, "arro3.core", None)

    assert export(where, tmp_path / "out") == 3
    assert "pip install 'kvpulse-app[export]'" in told(capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "none"], "engine-a"),
        (["--run", "none"], "run-1"),
        (["--table", "blocks"], "requests, rollups"),
        (["--tier", "5"], "1, 10, 60, 3600"),
        (["--last", "soon"], "90s"),
        (["--since", "yesterday"], "2026-11-30T16:00:00Z"),
        (["--since", "-1s", "--until", "-2s"], "after the one of --since"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_would_be_accepted(
    where: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    fill(where)

    assert export(where, tmp_path / "out", *arguments) == 2

    message = told(capsys)
    assert arguments[-2] in message
    assert said in message
    assert not (tmp_path / "out").exists()


def test_a_store_that_is_not_there_is_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(str(tmp_path / "none.db"), tmp_path / "out") == 3
    assert "no store at" in told(capsys)


def test_repeated_intervals_are_written_out_across_pages_and_numbers_stay_exact(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond_floats = 2**60 + 1
    idle = [rollup(1, second, active_block_ns=beyond_floats) for second in range(1, 40)]
    later = [rollup(1, second, active_block_ns=second) for second in (70, 90)]
    fill(where, rollups=(*idle, *later))
    with sqlite3.connect(where) as connection:
        (most,) = connection.execute("SELECT MAX(repeats) FROM rollups").fetchone()
    monkeypatch.setattr(pages, "PAGE_ROWS", 7)

    assert export(where, tmp_path / "out", "--table", "rollups") == 0

    found = parquet.read_table(tmp_path / "out" / "rollups.parquet")
    at = [(ns - OFFSET) // NS for ns in found["at"].cast("int64").to_pylist()]
    assert most > 30
    assert at == [*range(1, 40), 70, 90]
    assert found["active_block_ns"].to_pylist() == [beyond_floats] * 39 + [70, 90]
    assert found["running"].null_count == 41


def test_a_table_longer_than_a_page_and_a_row_group_has_each_row_once(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(where, requests=tuple(request(owner) for owner in range(1, 101)))
    monkeypatch.setattr(export_parquet, "ROW_GROUP_ROWS", 16)
    reads = open_reads(where)
    sizes = [len(page["owner"]) for page in reads.pages("requests", 1, 0, 2**62, 30)]
    reads.close()

    assert export(where, tmp_path / "out", "--table", "requests") == 0

    file = parquet.ParquetFile(tmp_path / "out" / "requests.parquet")
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert sizes == [30, 30, 30, 10]
    assert groups == [16] * 6 + [4]
    assert file.read()["owner"].to_pylist() == list(range(1, 101))


def test_hostile_texts_and_hashes_are_in_the_file_as_they_are_in_the_store(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(where, requests=(request(1, tenant=HOSTILE, request_hash=2**64 - 2), request(2)))

    assert export(where, tmp_path / "out", "--json") == 0

    found = parquet.read_table(tmp_path / "out" / "requests.parquet")
    assert found["tenant"].to_pylist() == [HOSTILE, None]
    assert found["request_hash"].to_pylist() == [2**64 - 2, None]
    assert found["admitted_at"].to_pylist() == [None, None]
    facts = json.loads(capsys.readouterr().out)
    assert facts["runs"] == [{"engine": "engine-a", "run_id": "run-1"}]


def test_only_runs_that_touch_the_window_are_written(where: str, tmp_path: Path) -> None:
    fill(where)
    after = f"{OFFSET + 101 * NS}ns"

    assert export(where, tmp_path / "in", "--table", "runs", "--until", after) == 0
    assert export(where, tmp_path / "out", "--table", "runs", "--since", after) == 0

    assert parquet.read_table(tmp_path / "in" / "runs.parquet").num_rows == 1
    assert parquet.read_table(tmp_path / "out" / "runs.parquet").num_rows == 0
