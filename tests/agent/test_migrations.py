"""The store's revisions: up and down on both databases, equal to the schema, refused when newer."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from agent.errors import StoreTooNew, StoreTooOld, StoreUnwritable
from agent.store.connection import StoreAddress, open_for_writing, parse_address
from agent.store.partitions import TIME_COLUMNS
from agent.store.revision import HEAD, REVISIONS, check_revision, migrate, stored_revision, upgrade
from agent.store.schema import metadata
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return parse_address(str(tmp_path / "state" / "kvpulse.db"))


@pytest.fixture
def engine(address: StoreAddress) -> Iterator[Engine]:
    engine = open_for_writing(address)
    yield engine
    engine.dispose()


def partition_names(connection: Connection) -> set[str]:
    if connection.dialect.name != "postgresql":
        return set()
    return set(
        connection.execute(text("SELECT relname FROM pg_class WHERE relispartition")).scalars()
    )


def but_partitions(parts: set[str]) -> Callable[..., bool]:
    """Leave out what Postgres has for itself: partitions, and no foreign keys on their tables."""

    def include(found: Any, name: str | None, kind: str, *_: object) -> bool:
        if kind == "foreign_key_constraint" and parts:
            return found.table.name not in TIME_COLUMNS
        return name not in parts and getattr(getattr(found, "table", None), "name", "") not in parts

    return include


def go_up_and_down(engine: Engine, address: StoreAddress) -> None:
    upgrade(engine, address)
    with engine.connect() as connection:
        parts = partition_names(connection)
        opts = {"compare_server_default": False, "include_object": but_partitions(parts)}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, metadata) == []
        tables = set(inspect(connection).get_table_names()) - parts
        assert tables == {*metadata.tables, "alembic_version"}

    with engine.begin() as connection:
        migrate(connection, "base")

    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
        assert stored_revision(connection) is None


def test_every_revision_goes_up_and_down_on_sqlite(engine: Engine, address: StoreAddress) -> None:
    go_up_and_down(engine, address)


@pytest.mark.postgres
def test_every_revision_goes_up_and_down_on_postgres(postgres_url: str) -> None:  # noqa: F811
    address = parse_address(postgres_url)
    engine = open_for_writing(address)

    go_up_and_down(engine, address)

    engine.dispose()


@pytest.mark.postgres
def test_blobs_are_not_compressed_twice_on_postgres(postgres_url: str) -> None:  # noqa: F811
    address = parse_address(postgres_url)
    engine = open_for_writing(address)
    upgrade(engine, address)

    query = "SELECT attstorage FROM pg_attribute WHERE attrelid = 'chunks'::regclass AND attname="
    with engine.connect() as connection:
        storage = connection.execute(text(query + "'data'")).scalar()

    assert storage in ("e", b"e")
    engine.dispose()


def test_the_list_of_known_revisions_is_the_folder_of_revisions() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parents[2] / "migrations"))
    script = ScriptDirectory.from_config(config)

    assert tuple(reversed([r.revision for r in script.walk_revisions()])) == REVISIONS
    assert script.get_current_head() == HEAD


def test_a_revision_imports_no_application_code() -> None:
    folder = Path(__file__).parents[2] / "migrations" / "versions"
    for path in folder.glob("*.py"):
        imported = [line for line in path.read_text().splitlines() if "import" in line]
        assert not [line for line in imported if "agent" in line or "kvpulse" in line], path


def test_a_store_newer_than_the_code_is_refused_and_left_alone(
    engine: Engine, address: StoreAddress
) -> None:
    upgrade(engine, address)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(StoreTooNew, match="revision 9999, newer than this kvpulse"):
        upgrade(engine, address)
    with pytest.raises(StoreTooNew):
        check_revision(engine, address)


def test_a_store_without_a_schema_is_told_how_to_get_one(
    engine: Engine, address: StoreAddress
) -> None:
    with pytest.raises(StoreTooOld, match="kvpulse db upgrade"):
        check_revision(engine, address)


def test_an_upgraded_store_passes_the_check_and_upgrading_again_changes_nothing(
    engine: Engine, address: StoreAddress
) -> None:
    assert upgrade(engine, address) is None
    assert upgrade(engine, address) == HEAD

    check_revision(engine, address)


def test_the_file_is_private_and_in_wal_mode_and_gives_space_back(
    engine: Engine, address: StoreAddress
) -> None:
    upgrade(engine, address)

    assert address.path is not None
    assert stat.S_IMODE(address.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(address.path.parent.stat().st_mode) == 0o700
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA auto_vacuum")).scalar() == 2
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreUnwritable, match="choose another --store"):
        open_for_writing(parse_address(str(tmp_path / "file" / "kvpulse.db")))


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kvpulse.db"
    path.write_bytes(b"certainly not a database" * 100)

    with pytest.raises(StoreUnwritable, match="not a database"):
        open_for_writing(parse_address(str(path)))
