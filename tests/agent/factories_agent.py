"""An agent's loop in this process over a journal and a store, on clocks that a test moves."""

import threading
from pathlib import Path

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.store.store import Store
from agent.stream_follower import Clocks


class Time:
    """Monotonic seconds and a wall clock that move only when told."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.wall_ns = 1_790_000_000 * 1_000_000_000

    def clocks(self) -> Clocks:
        """Return the clocks as an agent takes them."""
        return Clocks(wall_ns=lambda: self.wall_ns, seconds=lambda: self.seconds)


class Agent:
    """A loop and what it shows."""

    def __init__(
        self, journal: Path, where: str, time: Time | None = None, **settings: object
    ) -> None:
        self.time = time or Time()
        config = AgentConfig(journal=journal, store=where, **settings)  # type: ignore[arg-type]
        self.store = Store.open(
            where, seconds=lambda: self.time.seconds, wall_ns=lambda: self.time.wall_ns
        )
        self.view = LiveView(0)
        self.loop = AgentLoop(config, self.store, self.view, clocks=self.time.clocks())

    def drain(self) -> None:
        """Read everything that there is, and let go of it."""
        self.loop.drain(threading.Event())

    def go_on(self, turns: int, *, seconds: float = 0.25) -> None:
        """Go round, time passing between."""
        for _ in range(turns):
            self.loop.turn()
            self.time.seconds += seconds

    def vanish(self) -> None:
        """Stop as a killed process does: nothing is stored, nothing is given back."""
        for follower in self.loop._followers.values():
            follower.close()
        self.store.close()


def stored(where: str) -> int:
    """Return how many events of the only engine are stored; its books must be in order."""
    reads = open_reads(where)
    (engine,) = reads.engines()
    totals = reads.totals(engine.run_key)
    reads.close()
    assert (engine.events_lost, engine.audits_failed) == (0, 0)
    assert sum(total.stored for total in totals.values()) == engine.events_stored
    return engine.events_stored
