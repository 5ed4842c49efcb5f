"""Busy minutes for `kvpulse bench query`: recorded by the simulated engine, stored by the agent.

The engine runs a seeded trace in a process of its own, on its virtual clock. The agent's own loop
then stores the journal in commits as small as those of a live agent, one for each quarter of a
second, so that chunks and snapshots lie in the store as they do behind a running engine.
"""

import json
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, NamedTuple

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.store.store import Store

COMMITS_PER_SECOND: Final = 4
TOKENS_PER_ID: Final = 512  # of prompt, as Mooncake's traces have it
TOTAL_BLOCKS: Final = 32_768
JOURNAL_MIB: Final = 4096


class Load(NamedTuple):
    """What an engine is to do."""

    engine: str
    events_per_second: int  # about; what came of it is measured
    requests_per_second: float


LOADS: Final = (Load("busy-2k", 2_000, 2.2), Load("busy-20k", 20_000, 22.0))


class BusyStretch(NamedTuple):
    """A stored run whose block map can be asked for at any moment of `[start_ns, end_ns]`."""

    run_key: int
    start_ns: int
    end_ns: int
    num_events: int

    @property
    def events_per_second(self) -> float:
        """How many events a second of engine time really had."""
        return self.num_events / max((self.end_ns - self.start_ns) / 1e9, 1e-9)


def record_load(load: Load, folder: Path, *, seconds: float, seed: int) -> Path:
    """Let the simulated engine record so many seconds under a load; return its journal.

    Raises:
        subprocess.CalledProcessError: It could not; it has said why on stderr.
    """
    print(f"recording {load.events_per_second:,} events a second …", file=sys.stderr)
    trace, journal = folder / f"{load.engine}.jsonl", folder / load.engine
    trace.write_text("".join(_trace_lines(load, seconds, random.Random(seed))))
    journal.mkdir()
    command = [sys.executable, "-m", "kvpulse", "replay", str(trace), "--speed", "max"]
    command += ["--journal", str(journal), "--max-journal-mib", str(JOURNAL_MIB), "--json"]
    command += ["--engine", load.engine, "--total-blocks", str(TOTAL_BLOCKS)]
    command += ["--max-batch", "256", "--max-queue", "4096", "--seconds", str(seconds)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return journal


def _trace_lines(load: Load, seconds: float, source: random.Random) -> list[str]:
    """Return requests whose prompts begin like those of one of four tenants' documents."""
    lines, now, next_id = [], 0.0, 1_000
    while now < seconds:
        now += source.expovariate(load.requests_per_second)
        document, shared = 100 * source.randrange(4), source.choice((1, 1, 2, 4))
        own = source.choice((2, 4, 8, 16))
        ids = [*range(document, document + shared), *range(next_id, next_id + own)]
        next_id += own
        row = {
            "timestamp": now * 1000,
            "input_length": len(ids) * TOKENS_PER_ID - source.randrange(500),
            "output_length": min(600, int(source.lognormvariate(4.5, 0.8)) + 1),
            "hash_ids": ids,
        }
        lines.append(json.dumps(row) + "\n")
    return lines


def store_stretch(load: Load, journal: Path, where: str) -> BusyStretch:
    """Store a recorded load in commits of a quarter of a second."""
    print(f"storing {load.engine} …", file=sys.stderr)
    commit_events = load.events_per_second // COMMITS_PER_SECOND
    config = AgentConfig(journal=journal, store=where, commit_events=commit_events)
    with Store.open(where) as store:
        AgentLoop(config, store, LiveView(0)).drain(threading.Event())
    reads = open_reads(where)
    try:
        run = next(row for row in reads.engines() if row.engine == load.engine)
        health = reads.telemetry(run.run_key)
    finally:
        reads.close()
    end_ns = health.last_event_at_ns or run.started_at_ns
    return BusyStretch(run.run_key, run.started_at_ns, end_ns, health.stored)
