"""`kvpulse db`: creates, upgrades, checks; its exit code is the answer."""

import json
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from agent.store.revision import HEAD
from kvpulse.command import main as kvpulse


def main(arguments: list[str]) -> int:
    return kvpulse(["db", *arguments])


def test_upgrade_creates_a_store_that_passes_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "kvpulse.db")

    assert main(["upgrade", "--store", store]) == 0
    assert f"empty → {HEAD}" in capsys.readouterr().out
    assert main(["check", "--store", store, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)

    assert facts == {
        **{"store": store, "revision": HEAD, "needed": HEAD, "usable": True},
        **{"recounted": True, "findings": []},
    }


def test_a_store_that_is_not_there_cannot_be_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--store", str(tmp_path / "none.db")]) == 3
    assert "the file does not exist" in capsys.readouterr().err


def test_a_newer_store_is_a_bad_answer_and_upgrading_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "kvpulse.db")
    main(["upgrade", "--store", store])
    engine = create_engine(f"sqlite:///{store}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num='0999'"))
    engine.dispose()

    assert main(["check", "--store", store]) == 1
    assert main(["upgrade", "--store", store]) == 2
    assert "newer than this kvpulse" in capsys.readouterr().err


def test_a_bad_setting_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--store", "mysql://host/db"]) == 2
    assert "accepted is a path" in capsys.readouterr().err


def test_a_server_that_does_not_answer_cannot_be_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "--store", "postgresql://nobody@127.0.0.1:1/none"]) == 3
    assert "no store at postgresql://nobody@127.0.0.1:1/none" in capsys.readouterr().err
