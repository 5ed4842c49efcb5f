"""SQLite's locks outlive whatever else a process does with the same store."""

import subprocess
import sys
from pathlib import Path

from sqlalchemy import text

from agent.store.store import Store

COUNT = "SELECT count(*) FROM runs"


def look(path: Path) -> None:
    """Read the store in another process, whose connection closes as the last one it knows of."""
    program = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute({COUNT!r}); c.close()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_opening_a_store_twice_in_a_process_keeps_the_write_ahead_log(tmp_path):
    path = tmp_path / "kvpulse.db"
    with Store.open(str(path)) as store:
        with Store.open(str(path)):
            pass
        look(path)

        with store._engine.begin() as connection:
            connection.execute(text("CREATE TABLE written_after (x INTEGER)"))

        assert path.with_name("kvpulse.db-wal").exists()
        with Store.open(str(path)) as other, other._engine.connect() as connection:
            names = connection.execute(text("SELECT name FROM sqlite_master")).scalars().all()
    assert "written_after" in names
