"""One agent writes a stream; a second is refused by the lease, and a dead one's passes on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from agent.errors import LeaseLost, StreamHeld
from agent.store.holder import Beat, LeaseWatch, is_gone, this_agent
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from kvpulse.recorder import Recorder
from tests.agent.factories_agent import Agent, Time, stored
from tests.agent.factories_store import SHAPE, STREAM, delta, empty_store, kinds, progress
from tests.agent.simulated_writer import record
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
ELSEWHERE = "another-boot/1/17/99"  # a process that nobody here can see


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path)
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def put_elsewhere(where: str) -> None:
    """Let every lease be held on another machine."""
    with Store.open(where) as store, store._engine.begin() as connection:
        connection.execute(text("UPDATE leases SET process=:there"), {"there": ELSEWHERE})


def lease_rows(where: str) -> list[tuple[object, ...]]:
    with Store.open(where) as store, store._engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text("SELECT engine FROM leases"))]


def test_a_second_agent_is_refused_and_every_event_counts_once(
    journal: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    account = record(journal, num_requests=40)
    time = Time()
    first = Agent(journal, where, time, commit_events=2048)
    other = Agent(journal, where, time, commit_events=2048)
    first.go_on(1)

    other.go_on(3)

    (error,) = other.view.snapshot().errors
    assert first.store.leases.holder.name in error.text
    assert "another agent writes it" in error.text
    assert caplog.text.count("another agent writes it") == 1  # said once, not at each look
    first.drain()
    other.drain()
    assert (other.loop.num_events, other.loop.conflicts) == (0, [])
    assert stored(where) == account["events_emitted"]
    first.vanish()
    other.vanish()


def test_an_idle_agent_keeps_its_lease_against_one_on_another_machine(
    journal: Path, where: str
) -> None:
    recorder = Recorder.open(journal, "engine-a", total_blocks=8, block_size=4)
    time = Time()
    first, other = Agent(journal, where, time), Agent(journal, where, time)
    first.go_on(2)
    put_elsewhere(where)

    for _ in range(60):
        first.go_on(1, seconds=0)
        other.go_on(1, seconds=1)

    assert first.loop.conflicts == []
    assert len(other.loop._held) == 1
    recorder.close()
    first.vanish()
    other.vanish()


def test_a_dead_agents_lease_passes_on_within_ten_seconds(journal: Path, where: str) -> None:
    account = record(journal, num_requests=40)
    time = Time()
    first = Agent(journal, where, time, commit_events=2048)
    other = Agent(journal, where, time, commit_events=100_000)
    first.go_on(2)
    other.go_on(2)
    put_elsewhere(where)
    first.vanish()

    waited = 0.0
    while other.loop.num_events == 0:
        other.go_on(1)
        waited += 0.25
        assert waited <= 10
    other.drain()

    assert waited >= 5  # not before it had been silent for a while
    assert stored(where) == account["events_emitted"]
    other.vanish()


def test_an_agent_that_stops_gives_its_leases_back_at_once(journal: Path, where: str) -> None:
    recorder = Recorder.open(journal, "engine-a", total_blocks=8, block_size=4)
    first = Agent(journal, where)
    first.go_on(2)
    assert lease_rows(where) == [("engine-a",)]

    first.drain()

    assert lease_rows(where) == []
    recorder.close()
    first.vanish()


def test_an_agent_that_was_taken_over_from_stores_nothing_more(where: str) -> None:
    now = [0.0]
    with Store.open(where) as first, Store.open(where, seconds=lambda: now[0]) as second:
        late = first.writer(STREAM)
        late.commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))
        put_elsewhere(where)
        with pytest.raises(StreamHeld):
            second.writer(STREAM)
        for _ in range(2):
            now[0] += 2
            with pytest.raises(StreamHeld):
                second.writer(STREAM)
        now[0] += 2
        writer = second.writer(STREAM)

        with pytest.raises(LeaseLost, match=r"engine-a/run-1.*took the lease over"):
            late.commit(delta(9, stored=kinds(step=4)), SHAPE, progress(9))
        writer.commit(delta(8, stored=kinds(step=3)), SHAPE, progress(8))

        with second._engine.connect() as connection:
            assert connection.execute(text("SELECT stored FROM kind_totals")).scalar() == 8


def test_a_lease_of_a_killed_process_on_this_machine_passes_on_at_once(where: str) -> None:
    child = subprocess.run([sys.executable, "-c", "pass"], check=True)
    assert child.returncode == 0
    here = this_agent().process
    boot, space, _, start = here.split("/")
    with Store.open(where) as first:
        first.writer(STREAM)
    with Store.open(where) as store, store._engine.begin() as connection:
        gone = f"{boot}/{space}/4194304/{start}"  # beyond the largest process number
        connection.execute(text("UPDATE leases SET process=:gone"), {"gone": gone})

    with Store.open(where) as second:
        second.writer(STREAM).commit(delta(5), SHAPE, progress(5))


def test_a_process_is_known_by_more_than_its_number() -> None:
    boot, space, pid, start = this_agent().process.split("/")

    assert not is_gone(f"{boot}/{space}/{pid}/{start}")
    assert is_gone(f"{boot}/{space}/{pid}/1")  # the number was given to another process
    assert is_gone(f"{boot}/{space}/4194304/{start}")
    for elsewhere in ("", f"{boot}/1/4194304/1", f"x/{space}/4194304/1"):
        assert not is_gone(elsewhere)


def test_a_lease_is_over_only_after_a_whole_silence() -> None:
    now = [0.0]
    watch = LeaseWatch(lambda: now[0])
    found = []
    for beat in (1, 1, 2, 2, 2, 2, 2):
        found.append(watch.is_over("s", Beat("other", ELSEWHERE, beat)))
        now[0] += 2
    assert found == [False, False, False, False, False, True, True]
    assert watch.is_proven("s")


def test_what_nobody_could_look_at_was_not_silent() -> None:
    now = [0.0]
    watch = LeaseWatch(lambda: now[0])
    lease = Beat("other", ELSEWHERE, 1)
    assert not watch.is_over("s", lease)

    now[0] += 600  # the database was away

    assert not watch.is_over("s", lease)


def test_reading_once_beside_a_live_agent_is_refused_with_exit_code_3(
    journal: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record(journal, num_requests=20)
    first = Agent(journal, where, commit_events=1024)
    first.go_on(1)

    code = kvpulse(["agent", "--once", "--journal", str(journal), "--store", where])

    assert code == 3
    assert "another agent writes it" in capsys.readouterr().err
    first.vanish()


def test_reading_once_waits_for_the_lease_of_a_dead_agent(journal: Path, where: str) -> None:
    account = record(journal, num_requests=20)
    first = Agent(journal, where, commit_events=1024)
    first.go_on(1)
    first.vanish()
    put_elsewhere(where)
    time = Time()
    second = Agent(journal, where, time)

    def pass_time() -> None:
        while not done.wait(0.02):
            time.seconds += 0.5

    done = threading.Event()
    clock = threading.Thread(target=pass_time)
    clock.start()
    second.drain()
    done.set()
    clock.join()

    assert second.loop.conflicts == []
    assert stored(where) == account["events_emitted"]
    second.vanish()


@pytest.mark.slow
def test_an_agent_process_killed_by_force_is_followed_by_the_one_beside_it(
    journal: Path, where: str
) -> None:
    recorder = Recorder.open(journal, "engine-a", total_blocks=8, block_size=4)
    agents = []
    for _ in range(2):
        command = ["-m", "kvpulse", "agent", "--journal", journal, "--store", where]
        agents.append(
            subprocess.Popen(
                [sys.executable, *map(str, command), "--port", "0", "--json"],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
        facts = json.loads(agents[-1].stdout.readline())  # type: ignore[union-attr]
        assert facts["pid"] == agents[-1].pid
        wait_until(lambda: stored_so_far(where) > 0, timeout=20)

    os.kill(agents[0].pid, signal.SIGKILL)
    killed_at = time.monotonic()
    before = stored_so_far(where)
    recorder.heartbeat(1, 0, 0)
    wait_until(lambda: stored_so_far(where) > before, timeout=10)

    print(f"passed on after {time.monotonic() - killed_at:.2f} s")
    agents[1].send_signal(signal.SIGTERM)
    for agent in agents:
        agent.communicate(timeout=20)
    recorder.close()


def stored_so_far(where: str) -> int:
    with Store.open(where) as store, store._engine.connect() as connection:
        return connection.execute(text("SELECT events_stored FROM runs")).scalar() or 0
