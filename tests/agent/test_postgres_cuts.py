"""A Postgres that is cut off, restarted, crashed or silent: nothing lost, nothing doubled."""

# ruff: noqa: F811 - fixtures come in by their names

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from agent.chunks.chunk import decode_chunk
from agent.errors import StoreUnwritable
from agent.reads.reads import open_reads
from agent.store.store import Store
from kvpulse.recorder import Recorder
from tests.agent.factories_agent import Agent, stored
from tests.agent.factories_store import SHAPE, STREAM, chunk, delta, kinds, progress
from tests.agent.simulated_writer import record
from tests.postgres import PostgresServer, postgres_server, postgres_url  # noqa: F401 - fixtures
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.postgres


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def through(postgres_url: str, postgres_server: PostgresServer, proxy: TcpProxy) -> str:
    """The same database as `postgres_url`, reached through the proxy."""
    return postgres_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")


def check_chunks(where: str, num_events: int) -> None:
    """Count events in the chunks themselves; their sequence numbers must follow each other."""
    engine = create_engine(where)
    with engine.connect() as connection:
        rows = list(
            connection.execute(text("SELECT seq0, num_events, data FROM chunks ORDER BY 1"))
        )
    engine.dispose()
    expected = 0
    for seq0, _, data in rows:
        assert seq0 == expected
        expected += len(decode_chunk(bytes(data)).records)
    assert sum(row.num_events for row in rows) == num_events


def read_all(agent: Agent) -> None:
    """Go on, letting pauses pass, until there is nothing more to read."""
    for _ in range(400):
        more = agent.loop.turn()
        agent.time.seconds += 0.5
        if not more and agent.loop.store_error is None and not agent.loop._followers:
            return
    raise AssertionError("not done after 400 turns")


def test_cuts_at_any_byte_of_a_batch_lose_and_double_nothing(
    tmp_path: Path,
    postgres_url: str,
    through: str,
    proxy: TcpProxy,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    account = record(tmp_path / "journal", num_requests=60)
    agent = Agent(tmp_path / "journal", through, commit_events=1024, rescan_seconds=0.1)

    for _ in range(30):
        proxy.cut_after = rng.choice([1, 80, 700, 5_000, 30_000]) + rng.randrange(64)
        agent.go_on(2, seconds=9)
    proxy.cut_after = None
    read_all(agent)

    assert proxy.cuts >= 10
    assert agent.loop.conflicts == []
    assert stored(postgres_url) == account["events_emitted"]
    check_chunks(postgres_url, int(str(account["events_emitted"])))
    agent.vanish()


def test_a_commit_whose_answer_was_lost_is_known_to_be_stored(
    postgres_url: str,
    through: str,
    proxy: TcpProxy,
) -> None:
    with Store.open(through) as store, Store.open(postgres_url) as other:
        writer = store.writer(STREAM)
        changes = [
            delta(5, chunks=(chunk(0, 5),), stored=kinds(step=5)),
            delta(9, chunks=(chunk(5, 4),), stored=kinds(step=4)),
            delta(9, stored=kinds(step=1)),  # moves no position, as when an agent stops
        ]
        for change in changes:
            proxy.rob = b"COMMIT"
            with pytest.raises(StoreUnwritable):
                writer.commit(change, SHAPE, progress(change.seq))
            assert proxy.rob is None
            writer.commit(change, SHAPE, progress(change.seq))

        with other._engine.connect() as connection:
            kept = connection.execute(text("SELECT stored FROM kind_totals")).scalar()
            totals = connection.execute(text("SELECT events_stored, num_chunks FROM runs")).one()
    assert kept == 10
    assert tuple(totals) == (10, 2)


def test_a_commit_of_which_nothing_arrived_is_stored_by_the_next_attempt(
    through: str, proxy: TcpProxy
) -> None:
    with Store.open(through) as store:
        writer = store.writer(STREAM)
        change = delta(5, chunks=(chunk(0, 5, b"x" * 200_000),), stored=kinds(step=5))
        proxy.cut_after = 20_000
        with pytest.raises(StoreUnwritable):
            writer.commit(change, SHAPE, progress(5))

        key = writer.commit(change, SHAPE, progress(5))

        with store._engine.connect() as connection:
            row = connection.execute(text("SELECT run_key, events_stored FROM runs")).one()
    assert tuple(row) == (key, 5)


@pytest.mark.parametrize("crash", [False, True])
def test_a_restarted_server_is_found_again(
    tmp_path: Path,
    postgres_url: str,
    postgres_server: PostgresServer,
    crash: bool,
) -> None:
    account = record(tmp_path / "journal", num_requests=40)
    agent = Agent(tmp_path / "journal", postgres_url, commit_events=2048, rescan_seconds=0.1)
    agent.go_on(3)

    postgres_server.stop(crash=crash)
    agent.go_on(5, seconds=9)
    assert agent.loop.store_error is not None
    postgres_server.start()
    read_all(agent)

    assert stored(postgres_url) == account["events_emitted"]
    check_chunks(postgres_url, int(str(account["events_emitted"])))
    agent.vanish()


def test_while_the_server_is_away_one_commit_is_held_and_the_journal_keeps_the_rest(
    tmp_path: Path,
    postgres_url: str,
    through: str,
    proxy: TcpProxy,
) -> None:
    # All of it fits one segment: nothing is lost for want of the next one.
    recorder = Recorder.open(tmp_path / "journal", "engine-a", total_blocks=16, block_size=4)
    agent = Agent(tmp_path / "journal", through, commit_events=4096, rescan_seconds=0.1)
    agent.go_on(3)
    proxy.is_open = False
    proxy.cut()

    held = []
    for number in range(20):
        for step in range(4_000):
            recorder.heartbeat(4_000 * number + step, 0, 0)
        agent.go_on(1, seconds=9)
        (follower,) = agent.loop._followers.values()
        held.append(follower._reader.position)
    assert not agent.view.snapshot().store_writable

    assert len(set(held[1:])) == 1  # read no further than the one commit
    assert held[1].seq <= 3 * 4_096
    proxy.is_open = True
    agent.time.seconds += 9
    recorder.close()
    read_all(agent)
    assert agent.view.snapshot().store_writable
    assert stored(postgres_url) >= 80_000
    reads = open_reads(postgres_url)
    assert reads.totals(1)["heartbeat"].stored == 80_000
    reads.close()
    agent.vanish()


def test_the_pauses_between_attempts_grow(through: str, proxy: TcpProxy, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        recorder = Recorder.open(tmp_path / "journal", name, total_blocks=8, block_size=4)
        recorder.close()
    agent = Agent(tmp_path / "journal", through)
    proxy.is_open = False
    proxy.cut()

    agent.go_on(240, seconds=0.25)  # a minute

    assert 8 <= agent.loop._backoff.failures <= 16  # in all, not for each of three streams
    agent.vanish()


def test_a_server_that_falls_silent_and_answers_again_is_waited_for(
    tmp_path: Path,
    postgres_url: str,
    through: str,
    proxy: TcpProxy,
) -> None:
    account = record(tmp_path / "journal", num_requests=30)
    agent = Agent(tmp_path / "journal", through, commit_events=2048, rescan_seconds=0.1)
    agent.go_on(2)
    proxy.is_frozen = True
    thaw = threading.Timer(0.5, lambda: setattr(proxy, "is_frozen", False))
    thaw.start()
    read_all(agent)
    thaw.join()

    assert stored(postgres_url) == account["events_emitted"]
    agent.vanish()


def test_a_wall_clock_that_steps_both_ways_changes_no_count(
    tmp_path: Path,
    postgres_url: str,
) -> None:
    account = record(tmp_path / "journal", num_requests=40)
    agent = Agent(tmp_path / "journal", postgres_url, commit_events=2048, rescan_seconds=0.1)
    other = Agent(tmp_path / "journal", postgres_url, agent.time)
    hour_ns = 3_600_000_000_000

    for step_ns in (0, 5 * hour_ns, -9 * hour_ns, 4 * hour_ns):
        agent.time.wall_ns += step_ns
        agent.go_on(1)
        other.go_on(1)

    assert [str(stream) for stream in other.loop._held] == [
        str(stream) for stream in agent.loop._followers
    ]
    read_all(agent)
    assert stored(postgres_url) == account["events_emitted"]
    agent.vanish()
    other.vanish()


def test_an_agent_with_nothing_to_store_notices_that_the_server_is_back(
    tmp_path: Path, through: str, proxy: TcpProxy
) -> None:
    recorder = Recorder.open(tmp_path / "journal", "engine-a", total_blocks=8, block_size=4)
    agent = Agent(tmp_path / "journal", through)
    agent.go_on(3)
    proxy.is_open = False
    proxy.cut()
    agent.go_on(3, seconds=9)
    assert not agent.view.snapshot().store_writable

    proxy.is_open = True
    agent.go_on(2, seconds=9)

    assert agent.view.snapshot().store_writable
    assert agent.view.snapshot().errors == ()
    recorder.close()
    agent.vanish()
