"""Drive a stated case through the product's own intake: Recorder, journal, agent, store, reads."""

from dataclasses import dataclass
from pathlib import Path

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.ledger.delta import LiveState
from agent.live_view import LiveEngine, LiveView
from agent.reads.reads import Reads, open_reads
from agent.store.store import Store
from kvpulse.events import FinishReason, FreeOutcome, block_weight
from kvpulse.recorder import Recorder
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import SECOND, Clock


@dataclass(frozen=True)
class Seen:
    """What the agent made of a case."""

    reads: Reads
    key: int
    engine: LiveEngine

    @property
    def live(self) -> LiveState:
        return self.engine.live


class Case:
    """A Recorder with a clock moved by hand, and an agent to look at what it recorded."""

    def __init__(self, folder: Path, **shape: int) -> None:
        self.folder, self.clock = folder, Clock()
        self.counts: dict[int, int] = {}
        self.total = shape.get("total_blocks", 64)
        self.num_steps = 0
        self.recorder = Recorder.open(
            folder / "journal",
            "case",
            **{"total_blocks": 64, "block_size": 16, **shape},
            clock=self.clock,
            wall_clock=self.clock.wall,
        )

    def wait_seconds(self, seconds: float) -> None:
        self.clock.now_ns += round(seconds * SECOND)

    def take(self, owner: int, ids: list[int]) -> None:
        self.recorder.allocate(owner, ids)
        self.counts.update(dict.fromkeys(ids, 1))

    def share(self, owner: int, ids: list[int]) -> None:
        for block in ids:
            self.counts[block] = self.counts.get(block, 0) + 1
            self.recorder.share(owner, [block], self.counts[block])

    def drop(self, owner: int, ids: list[int], *, keep: bool = False) -> None:
        """Drop one reference to each; blocks that nobody holds then become cached or free."""
        for block in ids:
            left = self.counts[block] - 1
            self.counts[block] = left
            last = FreeOutcome.TO_CACHE if keep else FreeOutcome.TO_FREE
            outcome = FreeOutcome.HELD if left else last
            self.recorder.free(owner, [block], left, int(outcome))

    def finish(self, owner: int, *, prompt: int = 16, output: int = 1) -> None:
        stop = int(FinishReason.STOP)
        self.recorder.finish(owner, stop, prompt, output, prompt + output, 0)

    def step(self, *, decode: int = 0) -> None:
        self.num_steps += 1
        self.recorder.step(self.num_steps, 0, decode, 1, 0, 0, 1_000, 1_000, 1_000)

    def account(self, *, cached: int = 0, filled: int | None = None, total: int = 0) -> None:
        """State the pool's own account, from counts kept here and not by the Recorder."""
        total = total or self.total
        held = {block: count for block, count in self.counts.items() if count}
        checksum = sum(block_weight(b) * n for b, n in held.items()) % 2**64
        free = total - len(held) - cached
        words = (total, len(held), cached, free, sum(held.values()), checksum)
        self.recorder.pool(*words, filled_slots=filled)

    def seen(self) -> Seen:
        """Let the agent's own loop store what was recorded so far, and open it for reading."""
        where = empty_store(self.folder)
        view = LiveView(1, store_label="case", journal="case")
        with Store.open(where) as store:
            loop = AgentLoop(AgentConfig(journal=self.folder / "journal", store=where), store, view)
            while loop.turn():
                pass
            (engine,) = view.snapshot().engines.values()
            loop.close()
        assert engine.live.laws_failed == engine.live.audits_failed == 0, engine.live.last_failures
        reads = open_reads(where)
        return Seen(reads, reads.engines()[0].run_key, engine)
