"""How often the agent draws what it shows of an engine: news within a second, and never half."""

from pathlib import Path

import pytest

from agent.live_view import LiveEngine
from tests.agent.factories_agent import Agent
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import ToyEngine


class Followed:
    """An engine, and an agent in this process that follows it on a clock of the test's."""

    def __init__(self, folder: Path) -> None:
        self.engine = ToyEngine(folder / "journal")
        self.agent = Agent(folder / "journal", empty_store(folder))

    def arrive(self) -> None:
        """Let one more request come, and everything be stored; no time passes."""
        self.engine.arrive(1)
        while self.agent.loop.turn():
            pass

    @property
    def shown(self) -> LiveEngine:
        """What is shown of the engine."""
        (engine,) = self.agent.view.snapshot().engines.values()
        return engine

    @property
    def num_arrived(self) -> int:
        """How many requests are shown to have come."""
        return self.shown.live.counters["arrived"]


@pytest.fixture
def followed(tmp_path):
    made = Followed(tmp_path)
    yield made
    made.engine.recorder.close()
    made.agent.loop.close()
    made.agent.store.close()


def test_the_first_picture_waits_only_until_all_that_there_is_has_been_read(followed):
    followed.arrive()

    assert followed.num_arrived == 1


def test_commits_within_a_second_are_shown_together(followed):
    followed.arrive()
    before = followed.shown

    for _ in range(3):
        followed.agent.time.seconds += 0.3
        followed.arrive()
    assert followed.shown is before
    followed.agent.time.seconds += 0.3
    followed.arrive()

    assert followed.num_arrived == 5


def test_what_no_commit_follows_is_shown_when_the_second_is_over(followed):
    followed.arrive()
    followed.arrive()

    followed.agent.go_on(2, seconds=1.0)

    assert followed.num_arrived == 2


def test_commits_are_counted_at_once_though_not_yet_shown(followed):
    followed.arrive()
    before = followed.agent.view.snapshot()

    followed.agent.time.wall_ns += 1_000
    followed.arrive()

    after = followed.agent.view.snapshot()
    assert after.commits == before.commits + 1
    assert after.last_commit_at_ns == before.last_commit_at_ns + 1_000
