"""The schema is brought up to date in a process of its own, and nothing depends on that."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.store.connection import open_for_reading, parse_address
from agent.store.revision import HEAD, stored_revision
from agent.store.upgrade_apart import upgrade_apart
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

LOOK = """
import sys
from agent.store.store import Store
from agent.store.upgrade_apart import upgrade_apart
upgrade_apart(sys.argv[1])
Store.open(sys.argv[1]).close()
sys.exit("alembic" in sys.modules)
"""


def revision_of(where: str) -> str | None:
    engine = open_for_reading(parse_address(where))
    with engine.connect() as connection:
        found = stored_revision(connection)
    engine.dispose()
    return found


def test_a_fresh_store_gets_its_schema_and_this_process_no_alembic(tmp_path: Path):
    where = str(tmp_path / "kvpulse.db")

    looked = subprocess.run([sys.executable, "-c", LOOK, where], check=False)

    assert looked.returncode == 0
    assert revision_of(where) == HEAD


@pytest.mark.postgres
def test_a_server_gets_its_schema_too(postgres_url: str):  # noqa: F811
    upgrade_apart(postgres_url)

    assert revision_of(postgres_url) == HEAD


def test_a_store_that_is_up_to_date_is_left_alone(tmp_path: Path, monkeypatch):
    where = str(tmp_path / "kvpulse.db")
    upgrade_apart(where)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))

    upgrade_apart(where)


@pytest.mark.parametrize("content", [b"not a database", b""])
def test_what_cannot_be_upgraded_is_no_error_here(tmp_path: Path, content: bytes):
    path = tmp_path / "no_folder" / "kvpulse.db" if content == b"" else tmp_path / "kvpulse.db"
    if content:
        path.write_bytes(content)

    upgrade_apart(str(path))

    if content:
        assert path.read_bytes() == content


def test_a_store_of_a_newer_kvpulse_is_not_touched(tmp_path: Path):
    where = str(tmp_path / "kvpulse.db")
    upgrade_apart(where)
    with sqlite3.connect(where) as newer:
        newer.execute("UPDATE alembic_version SET version_num='9999'")

    upgrade_apart(where)

    assert revision_of(where) == "9999"


def test_a_database_that_the_store_cannot_use_is_refused():
    with pytest.raises(ConfigError):
        upgrade_apart("mysql://host/name")
