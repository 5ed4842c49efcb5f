"""Triage over real stores: the same verdict on both databases, and engines that fall silent."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.reads.reads import open_reads
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.report import as_json
from agent.triage.verdicts import Diagnosis, Verdict
from kvpulse.command import main as kvpulse
from kvpulse.recorder import Recorder
from kvpulse.shadow_pool import ShadowPool
from tests.agent.factories_agent import Agent
from tests.agent.factories_store import NS, empty_store
from tests.agent.incidents.factories_watch import ENGINE, record_faulty
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

SECONDS = 120.0


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded engine that leaks now and then, from its first minute on."""
    journal = tmp_path_factory.mktemp("leaky") / "journal"
    record_faulty(journal, "leak_slow:every=10,after_seconds=40", seconds=SECONDS)
    return journal


def _judged(journal: Path, where: str) -> Diagnosis:
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", where]) == 0
    reads = open_reads(where)
    (run,) = reads.runs(ENGINE)
    found = examine(reads, Question(run))
    reads.close()
    return found


@pytest.mark.postgres
def test_both_databases_give_the_same_verdict_with_the_same_evidence(
    leaky: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = str(request.getfixturevalue("postgres_url"))
    of_file, of_server = (_judged(leaky, where) for where in (empty_store(tmp_path), server))

    code = kvpulse(["doctor", "--store", server, "--engine", ENGINE, "--at", "-1s"])

    assert of_file.verdict is Verdict.POOL_LEAK
    assert as_json(of_server) == as_json(of_file)
    assert code == 1
    assert re.search(rf"^{ENGINE}: .*pool_leak", capsys.readouterr().out, re.MULTILINE)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path)
    return str(request.getfixturevalue("postgres_url"))


class QuietEngine:
    """An engine of one sequence that has run some steps; then a test says what it states."""

    def __init__(self, journal: Path) -> None:
        self.now_ns = 1_000 * NS
        self.recorder = Recorder.open(
            journal, "quiet", total_blocks=64, block_size=16, clock=lambda: self.now_ns
        )
        self.shadow = ShadowPool(self.recorder)
        self.recorder.config({"engine": "quiet", "total_blocks": 64, "block_size": 16})
        self.shadow.arrive(1, 64, 32)
        self.shadow.admit(1)
        self.shadow.allocate(1, [1, 2, 3, 4])
        self.shadow.step(1, 64, 0, 1, 64, 0, 1_000, 2_000_000, 1_000)
        self.recorder.heartbeat(1, live=1, waiting=0)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[QuietEngine]:
    quiet = QuietEngine(tmp_path / "journal")
    yield quiet
    quiet.recorder.close()


@pytest.fixture
def agent(engine: QuietEngine, tmp_path: Path, where: str) -> Iterator[Agent]:
    follows = Agent(tmp_path / "journal", where)
    yield follows
    follows.vanish()


def _examine(agent: Agent, where: str, *, since: float) -> Diagnosis:
    """Let time pass on the agent's clocks, and judge what is stored then."""
    for _ in range(int(since)):
        agent.time.wall_ns += NS
        agent.go_on(1, seconds=1.0)
    reads = open_reads(where)
    (run,) = reads.runs("quiet")
    found = examine(reads, Question(run, now_ns=agent.time.wall_ns))
    reads.close()
    return found


def test_an_engine_whose_heartbeats_stop_with_a_sequence_live_is_stalled(
    agent: Agent, where: str
) -> None:
    agent.go_on(2)

    before = _examine(agent, where, since=5)
    after = _examine(agent, where, since=20)

    assert before.verdict is Verdict.HEALTHY
    assert after.verdict is Verdict.STALLED
    assert "no sign of life" in after.headline.summary


def test_nothing_new_is_no_standstill_of_the_engine_where_the_agent_has_gone(
    agent: Agent, where: str
) -> None:
    agent.go_on(2)
    agent.vanish()

    reads = open_reads(where)
    (run,) = reads.runs("quiet")
    found = examine(reads, Question(run, now_ns=agent.time.wall_ns + 130 * NS))
    reads.close()

    assert found.verdict is Verdict.TELEMETRY_INCOMPLETE


def test_an_engine_whose_heartbeats_go_on_without_steps_is_stalled(
    engine: QuietEngine, agent: Agent, where: str
) -> None:
    for _ in range(30):
        engine.now_ns += NS
        engine.recorder.heartbeat(1, live=1, waiting=0)
    agent.go_on(2)

    found = _examine(agent, where, since=1)

    assert found.verdict is Verdict.STALLED
    said = r"no step for (29|30) s although sequences are live"  # heartbeats end within a second
    assert re.match(said, found.headline.summary)
