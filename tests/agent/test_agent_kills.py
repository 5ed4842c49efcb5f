"""kill -9 of the agent at random points: every event counts once, and nothing else differs."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from agent.chunks.chunk import decode_chunk
from agent.reads.reads import open_reads
from kvpulse.command import main as kvpulse
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
NUM_KILLS = 24
WRITING_SECONDS = 12.0


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def start_agent(journal: Path, store: Path) -> int:
    """Fork an agent: it begins at once, without a second's imports."""
    pid = os.fork()
    if pid:
        return pid
    code = 9
    try:
        os.environ["KVPULSE_COMMIT_SECONDS"] = "0.02"
        os.environ["KVPULSE_COMMIT_EVENTS"] = "3000"
        arguments = ["--journal", str(journal), "--store", str(store), "--port", "0"]
        code = kvpulse(["agent", *arguments, "--log-level", "error"])
    finally:
        os._exit(code)


def kill_at_random(agent: int, position: Callable[[], int], rng: random.Random) -> int:
    """Kill an agent, mostly while it commits; return how many records it had stored."""
    before = position()
    if rng.random() < 0.75:
        deadline = time.monotonic() + 3
        while position() == before and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.12))
    else:
        time.sleep(rng.uniform(0, 0.4))  # on its way up
    os.kill(agent, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(agent, 0)[1]) == signal.SIGKILL
    return position() - before


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_agent_killed_again_and_again_ends_with_the_totals_of_one_that_was_not(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    journal, store = tmp_path / "journal", tmp_path / "killed.db"
    kvpulse(["db", "upgrade", "--store", str(store)])
    writer = start("tests.agent.simulated_writer", journal, WRITING_SECONDS, 600)
    wait_until(lambda: list(journal.glob("*/*/*.seg")), timeout=30)

    def position() -> int:
        # Opened anew each time: SQLite's locks must not be carried through a fork.
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT seq FROM positions").fetchone()
        return row[0] if row else 0

    moved = [kill_at_random(start_agent(journal, store), position, rng) for _ in range(NUM_KILLS)]
    output, _ = writer.communicate(timeout=60)
    account = json.loads(output)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", str(store)]) == 0
    whole = tmp_path / "whole.db"
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", str(whole)]) == 0

    print(f"{NUM_KILLS} kills, records stored before each: {moved}")
    assert sum(1 for records in moved if records) >= 5  # they fell into the work, not beside it
    assert per_kind(store) == account["per_kind"]
    assert tables(store) == tables(whole)
    assert block_seconds(store) == pytest.approx(block_seconds(whole), rel=1e-9)
    assert stored_events(store) == stored_events(whole) == account["events_emitted"]
    check_maps(store, whole)


def per_kind(store: Path) -> dict[str, int]:
    reads = open_reads(str(store))
    (engine,) = reads.engines()
    totals = reads.totals(engine.run_key)
    reads.close()
    assert (engine.events_lost, engine.num_gaps, engine.audits_failed) == (0, 0, 0)
    assert engine.audits_passed > 50
    return {kind: total.stored for kind, total in totals.items()}


COMPARED = {
    "rollups": "tier_seconds, at_ns",
    "latencies": "metric, tier_seconds, at_ns",
    "labelled": "family, tier_seconds, at_ns, label",
    "kind_totals": "kind",
    "strings": "string_id",
    "configs": "at_ns",
    "gaps": "seq0",
    "leaks": "block",
    "broken_laws": "law, opened_at_ns",
}


def tables(store: Path) -> dict[str, list[tuple[object, ...]]]:
    engine = create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        found = {
            table: [
                tuple(row)
                for row in connection.execute(text(f"SELECT * FROM {table} ORDER BY {order}"))
            ]
            for table, order in COMPARED.items()
        }
        requests = connection.execute(text("SELECT * FROM requests ORDER BY owner"))
        # A sum of many shares of time depends in its last bits on where it was cut (compared
        # apart); a configuration is dated by its commit.
        found["requests"] = [tuple(v for v in row if not isinstance(v, float)) for row in requests]
        found["configs"] = [(row[0], row[2]) for row in found["configs"]]
    engine.dispose()
    assert found["rollups"]
    assert found["requests"]
    return found


def block_seconds(store: Path) -> list[float | None]:
    engine = create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT block_seconds FROM requests ORDER BY owner"))
        found = [row[0] for row in rows]
    engine.dispose()
    return found


def stored_events(store: Path) -> int:
    """Count events in the chunks themselves, and hold their sequence numbers together."""
    engine = create_engine(f"sqlite:///{store}")
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT seq0, num_events, data FROM chunks ORDER BY seq0"))
        expected, events = 0, 0
        for seq0, num_events, data in rows:
            records = decode_chunk(data).records
            assert seq0 == expected
            expected += len(records)
            events += num_events
    engine.dispose()
    return events


def check_maps(store: Path, whole: Path) -> None:
    """Rebuild the map at moments across the run from both stores."""
    first, second = open_reads(str(store)), open_reads(str(whole))
    (engine,) = first.engines()
    assert engine.last_event_at_ns is not None
    span = engine.last_event_at_ns - engine.started_at_ns
    for share in (0.1, 0.35, 0.5, 0.77, 1.0):
        at_ns = engine.started_at_ns + int(share * span)
        one, two = (reads.block_map(engine.run_key, at_ns) for reads in (first, second))
        assert one is not None
        assert two is not None
        assert one.exact
        assert one.state.tolist() == two.state.tolist()
        assert one.count.tolist() == two.count.tolist()
        assert [sorted(o) for o in one.owners] == [sorted(o) for o in two.owners]
    first.close()
    second.close()
