"""Open the store's database: URL or path to engine, SQLite's settings, and file permissions."""

import os
import sqlite3
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from agent.byte_size import bytes_text
from agent.errors import ConfigError, StoreNotFound, StoreUnwritable

BUSY_TIMEOUT_SECONDS: Final = 5.0
INCREMENTAL_VACUUM: Final = 2
DISK_TROUBLE: Final = ("disk is full", "disk I/O error")  # the latter also where shm cannot grow


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is: an SQLite file, or a server's URL."""

    path: Path | None
    url: URL | None

    @property
    def label(self) -> str:
        """A text for people and logs, without the password."""
        if self.url is not None:
            return self.url.render_as_string(hide_password=True)
        return str(self.path)


def parse_address(text: str) -> StoreAddress:
    """Read the path of an SQLite file or an SQLAlchemy URL.

    Raises:
        ConfigError: It is a URL of a database that the store cannot use.
    """
    if "://" not in text:
        return StoreAddress(Path(text).expanduser(), None)
    accepted = "a path, sqlite:///path or postgresql://user@host/database"
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ConfigError("store", text, accepted) from error
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ConfigError("store", text, "sqlite:///path: a store in memory would be lost")
        return StoreAddress(Path(url.database), None)
    if url.get_backend_name() != "postgresql":
        raise ConfigError("store", text, accepted)
    return StoreAddress(None, url)


def open_for_writing(address: StoreAddress) -> Engine:
    """Return an engine that writes; makes the SQLite file and its folder where missing.

    Raises:
        StoreUnwritable: Folder or file cannot be made or written, or the server says no.
    """
    if address.path is None:
        return _check(_server_engine(address, read_only=False), address)
    path = _make_private_file(address)
    return _check(_sqlite_engine(path, "rw"), address)


def open_for_reading(address: StoreAddress) -> Engine:
    """Return an engine whose every transaction is read-only.

    Raises:
        StoreNotFound: There is no such file or server, or it cannot be read.
    """
    if address.path is not None and not address.path.is_file():
        raise StoreNotFound(address.label, "the file does not exist")
    engine = (
        _server_engine(address, read_only=True)
        if address.path is None
        else _sqlite_engine(address.path, "ro")
    )
    try:
        engine.connect().close()
    except DBAPIError as error:
        engine.dispose()
        raise StoreNotFound(address.label, first_line(error)) from error
    return engine


def first_line(error: BaseException) -> str:
    """Return what the driver said, without SQLAlchemy's appendix."""
    cause = getattr(error, "orig", None) or error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def why_unwritable(address: StoreAddress, error: BaseException) -> str:
    """Return what the driver said, and how much room there is where that may be the cause."""
    said = first_line(error)
    if address.path is None or not any(sign in said for sign in DISK_TROUBLE):
        return said
    try:
        disk = os.statvfs(address.path.parent)
    except OSError:
        return said
    room = bytes_text(disk.f_bavail * disk.f_frsize)
    return f"{said} ({room} free in {address.path.parent})"


def _check(engine: Engine, address: StoreAddress) -> Engine:
    try:
        engine.connect().close()
    except DBAPIError as error:
        engine.dispose()
        raise StoreUnwritable(address.label, first_line(error)) from error
    return engine


def _make_private_file(address: StoreAddress) -> Path:
    """Make the file where it is missing, for its owner alone.

    One that exists is not opened: closing any descriptor of a file drops all of the process's locks
    on it, also those of SQLite's other connections, whose log the next reader would then delete.
    Source: sqlite.org/howtocorrupt.html, section 2.2.
    """
    path = address.path
    assert path is not None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o600))
        mode = path.stat().st_mode
    except OSError as error:
        why = f"{error.strerror or error} (folder {path.parent}); choose another --store"
        raise StoreUnwritable(address.label, why) from error
    if not stat.S_ISREG(mode):
        raise StoreUnwritable(address.label, "it is not a regular file")
    return path


def _sqlite_engine(path: Path, mode: str) -> Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}",
            uri=True,
            timeout=BUSY_TIMEOUT_SECONDS,
            check_same_thread=False,
            isolation_level=None,
        )

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    writes = mode == "rw"

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        for pragma in _WRITE_PRAGMAS if writes else _READ_PRAGMAS:
            connection.execute(pragma)

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        # The driver's own BEGIN comes too late and takes a read lock first: two writers would
        # fail instead of waiting for each other.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


_READ_PRAGMAS: Final = ("PRAGMA query_only=ON", "PRAGMA cache_size=-8192")
_WRITE_PRAGMAS: Final = (
    f"PRAGMA auto_vacuum={INCREMENTAL_VACUUM}",  # holds only before the first table is made
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-8192",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=33554432",  # a large catch-up does not leave a large file behind
)


# Both ends notice within some 20 s that the other one is gone without a word (a pulled cable, a
# firewall that forgot the connection): or the agent would wait for ever, and what it left locked
# on the server would wait with it.
_CLIENT_NOTICES: Final = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SERVER_NOTICES: Final = (
    "tcp_keepalives_idle=5",
    "tcp_keepalives_interval=5",
    "tcp_keepalives_count=3",
    "tcp_user_timeout=20000",
)
_READ_SETTINGS: Final = (
    "default_transaction_read_only=on",
    "default_transaction_isolation=repeatable\\ read",
)
# One who died in the middle of a transaction must not keep a row from the agent that takes over.
_WRITE_SETTINGS: Final = ("lock_timeout=10000", "idle_in_transaction_session_timeout=15000")


def _server_engine(address: StoreAddress, *, read_only: bool) -> Engine:
    assert address.url is not None
    # Reading sees one state of the store for a whole answer, as SQLite gives it.
    settings = _READ_SETTINGS if read_only else _WRITE_SETTINGS
    options = " ".join(f"-c {setting}" for setting in (*_SERVER_NOTICES, *settings))
    arguments = {**_CLIENT_NOTICES, "application_name": "kvpulse", "options": options}
    try:
        # Without hstore a new connection asks nothing; one cut while it asks would be left open.
        engine = create_engine(
            address.url, connect_args=arguments, pool_pre_ping=True, use_native_hstore=False
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        why = "the Postgres driver is missing: pip install 'psycopg[binary]'"
        raise StoreUnwritable(address.label, why) from error
    if read_only and engine.dialect.driver == "psycopg":
        event.listen(engine, "connect", _read_binary)
    return engine


def _read_binary(connection: Any, _record: Any) -> None:
    """Let a connection of psycopg get its answers in binary: blobs as text are twice as long."""
    from psycopg import Cursor
    from psycopg.pq import Format

    class BinaryCursor(Cursor[Any]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.format = Format.BINARY

    connection.cursor_factory = BinaryCursor
