"""A step of the engine's wall clock is a mark: told once, whatever becomes of the agent."""

from array import array
from pathlib import Path

import pytest

from agent.ledger.clock_watch import LEAST_STEP_NS, MOST_TOLD, ClockWatch
from agent.ledger.ledger import Ledger
from agent.reads.models import MarkKind
from agent.reads.reads import open_reads
from agent.triage.gather import Question, gather
from kvpulse.events import HeartbeatWord, Kind
from kvpulse.reader import StreamReader
from kvpulse.stream_values import ClockPair
from tests.agent.factories_agent import Agent, Time
from tests.agent.factories_ledger import Stored, follow, new_ledger
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import MS, SECOND, WALL_AT_START, Clock, ToyEngine
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures
from tests.waiting import wait_until

HOUR = 3_600 * SECOND


class SetClock(Clock):
    """A clock whose wall time is set by hand, beside the engine's own that goes on."""

    ahead_ns = 0

    def wall(self) -> int:
        return WALL_AT_START + self.now_ns + self.ahead_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    monkeypatch.setattr("tests.agent.factories_stream.Clock", lambda: clock)
    return clock


@pytest.fixture
def engine(tmp_path: Path, clock: SetClock) -> ToyEngine:
    return ToyEngine(tmp_path / "journal", run_id="r")


def beat(engine: ToyEngine, *, ahead_ns: int | None = None) -> None:
    """Let a second pass, perhaps set the wall clock, and state both clocks."""
    engine.clock.now_ns += SECOND
    if ahead_ns is not None:
        engine.clock.ahead_ns = ahead_ns
    engine.step()
    engine.recorder.heartbeat(engine.steps, 0, 0)


def told(stored: Stored) -> list[tuple[int, int]]:
    """Return the steps that were handed out, in seconds since the clock began."""
    steps = [step for delta in stored.deltas for step in delta.clock_steps]
    return [(step.t_ns // SECOND - 5, step.step_ns) for step in steps]


def test_steps_forward_and_back_are_told_with_their_size_and_time(engine):
    for ahead_ns in (0, HOUR, HOUR, 0, -2 * HOUR):
        beat(engine, ahead_ns=ahead_ns)
    engine.recorder.close()

    ledger, stored = follow(engine.recorder.directory, max_events=3)

    assert told(stored) == [(2, HOUR), (4, -HOUR), (5, -2 * HOUR)]
    live = ledger.live()
    assert live.num_clock_steps == 3
    assert live.clock_step.step_ns == -2 * HOUR
    assert live.wall_offset_ns == WALL_AT_START


def test_a_drift_below_the_bound_is_no_step_however_far_it_goes(engine):
    for number in range(20):
        beat(engine, ahead_ns=number * (LEAST_STEP_NS - 1))
    engine.recorder.close()

    _, stored = follow(engine.recorder.directory)

    assert engine.clock.ahead_ns > 9 * SECOND
    assert told(stored) == []


def test_a_step_of_just_the_bound_is_one(engine):
    beat(engine)
    beat(engine, ahead_ns=-LEAST_STEP_NS)
    engine.recorder.close()

    assert told(follow(engine.recorder.directory)[1]) == [(2, -LEAST_STEP_NS)]


def test_a_step_is_seen_at_a_segments_start_where_no_heartbeat_is_stated(tmp_path, clock):
    engine = ToyEngine(tmp_path, segment_bytes=8192)
    directory = engine.recorder.directory
    while len(list(directory.glob("*.seg"))) < 2:
        wait_until(lambda: engine.recorder._reserver.ready is not None)
        clock.ahead_ns = HOUR
        clock.now_ns += 10 * MS
        engine.step()
        engine.pool()
    engine.recorder.close()

    ledger, stored = follow(directory, max_events=1)

    assert [step_ns for _, step_ns in told(stored)] == [HOUR]
    assert ledger.live().clock_step.t_ns <= clock.now_ns
    (delta,) = [delta for delta in stored.deltas if delta.clock_steps]
    assert delta.snapshot is not None
    resumed = Ledger.resume(delta.snapshot)
    assert resumed.live().num_clock_steps == 1
    assert resumed.live().clock_step == ledger.live().clock_step


def resumed_from(stored: Stored) -> Ledger:
    """Return what a restarted agent has: the newest snapshot and the chunks after it."""
    deltas = stored.deltas
    at = max(number for number, delta in enumerate(deltas) if delta.snapshot is not None)
    ledger = Ledger.resume(deltas[at].snapshot)
    for chunk in (chunk for delta in deltas[at + 1 :] for chunk in delta.chunks):
        ledger.replay(chunk.blob)
    ledger.replayed_to(deltas[-1].seq)
    return ledger


def test_an_agent_killed_after_any_commit_tells_each_step_once(engine):
    for ahead_ns in (0, HOUR, HOUR, -HOUR, -HOUR, 0):
        beat(engine, ahead_ns=ahead_ns)
    engine.recorder.close()
    directory = engine.recorder.directory
    whole = told(follow(directory, max_events=1)[1])
    assert len(whole) == 3

    reader = StreamReader(directory)
    ledger, stored = None, Stored()
    while (batch := reader.read(1)) is not None:
        ledger = new_ledger(batch) if ledger is None else resumed_from(stored)
        ledger.apply(batch)
        stored.put(ledger.take())

    assert told(stored) == whole
    assert ledger.live().num_clock_steps == 3


def heartbeat_words(wall_ns: int, monotonic_ns: int) -> list[int]:
    words = [0] * len(HeartbeatWord)
    for low, value in (
        (HeartbeatWord.WALL_LOW, wall_ns),
        (HeartbeatWord.MONOTONIC_LOW, monotonic_ns),
    ):
        words[low], words[low + 1] = value & 0xFFFF_FFFF, value >> 32
    return words


def test_damaged_clocks_say_nothing(engine):
    beat(engine)
    recorder = engine.recorder
    for words in (
        heartbeat_words(2**64 - 1, 5 * SECOND),
        heartbeat_words(0, 2**63),
        [1, 2, 3],
    ):
        recorder._emit_lane(int(Kind.HEARTBEAT), 0, 0, 0, array("I", words), len(words), 0)
    beat(engine)
    recorder.close()

    assert told(follow(recorder.directory)[1]) == []


def test_a_clock_that_never_stands_still_is_told_a_bounded_number_of_times():
    watch = ClockWatch()
    for number in range(MOST_TOLD + 50):
        watch.meet_segment(ClockPair(number % 2 * HOUR, 0), number + 1)

    assert len(watch.take()) == MOST_TOLD
    assert watch.num_steps == MOST_TOLD + 49


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return empty_store(tmp_path)


def test_steps_are_stored_once_and_are_marks_across_vanished_agents(engine, where, tmp_path):
    for ahead_ns in (0, HOUR, HOUR, 0):
        beat(engine, ahead_ns=ahead_ns)
    engine.recorder.close()

    time = Time()
    for _ in range(3):
        agent = Agent(tmp_path / "journal", where, time, commit_events=2)
        before = agent.loop.num_events
        while agent.loop.num_events == before:  # its forerunner's lease lasts a while
            agent.go_on(1)
        agent.vanish()
    agent = Agent(tmp_path / "journal", where, time)
    while not agent.loop.num_events:
        agent.go_on(1)
    agent.drain()
    agent.vanish()

    reads = open_reads(where)
    (run,) = reads.engines()
    steps = reads.clock_steps(run.run_key, 0, 2**62)
    marks = [m for m in reads.marks(run.run_key, 0, 2**62) if m.kind is MarkKind.CLOCK_STEP]
    facts = gather(reads, Question(run))
    reads.close()
    assert [(s.t_ns - WALL_AT_START, s.step_ns) for s in steps] == [
        (7 * SECOND, HOUR),
        (9 * SECOND, -HOUR),
    ]
    assert [(m.t_ns, m.text) for m in marks] == [
        (steps[0].t_ns, "the wall clock stepped by +3,600.0 s"),
        (steps[1].t_ns, "the wall clock stepped by -3,600.0 s"),
    ]
    assert facts.telemetry.clock_steps == tuple(steps)
