"""One timed ingest: everything that a journal holds, into one store."""

import resource
import threading
import time
from typing import NamedTuple

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.ledger.delta import LiveState
from agent.ledger.freed_memory import keep_freed_memory
from agent.live_view import LiveView
from agent.store.store import Store


class Ingest(NamedTuple):
    """What ingesting a journal came to."""

    events: int
    cpu_seconds: float
    peak_rss_mb: float
    live: list[LiveState]  # of each engine, at the end


def ingest(config: AgentConfig) -> Ingest:
    """Store everything that a journal holds, as `kvpulse agent --once` does."""
    keep_freed_memory()
    with Store.open(config.store) as store:
        view = LiveView(time.time_ns())
        loop = AgentLoop(config, store, view)
        began = time.process_time()
        loop.drain(threading.Event())
        cpu_seconds = time.process_time() - began
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    live = [engine.live for engine in view.snapshot().engines.values()]
    return Ingest(loop.num_events, cpu_seconds, round(peak_kib / 1024, 1), live)
