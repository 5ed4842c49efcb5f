"""A store worth pruning: the half minute of a busy engine that has ended, with many snapshots."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.store.connection import parse_address
from agent.store.prune import Pruned, Pruner
from agent.store.store import Store
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record


@cache
def _recorded_store() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder / "journal", num_requests=300)
        where = empty_store(folder)
        fill_with_snapshots(where, folder / "journal")
        return Path(where).read_bytes()


def recorded_store(folder: Path) -> str:
    """Put the store into a folder."""
    path = folder / "kvpulse.db"
    path.write_bytes(_recorded_store())
    return str(path)


def fill_with_snapshots(where: str, journal: Path) -> None:
    """Follow a journal to its end, with a snapshot each 4 s, as if those were many minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent.ledger.ledger.SNAPSHOT_NS", 4_000_000_000)
        fill(where, journal)


def fill(where: str, journal: Path) -> None:
    """Follow a journal to its end."""
    config = AgentConfig(journal=journal, store=where, commit_events=2048)
    with Store.open(where) as store:
        loop = AgentLoop(config, store, LiveView(0))
        while loop.turn(scan=True):
            pass
        loop.turn(scan=True)


def prune(where: str, budget: int) -> Pruned:
    """Bring a store under a budget."""
    pruner = Pruner(parse_address(where))
    try:
        return pruner.prune(budget)
    finally:
        pruner.close()


def rows(where: str, query: str, **bind: object) -> list[tuple[object, ...]]:
    """Return what a query answers."""
    engine = create_engine(f"sqlite:///{where}" if "://" not in where else where)
    with engine.begin() as connection:
        found = [tuple(row) for row in connection.execute(text(query), bind)]
    engine.dispose()
    return found
