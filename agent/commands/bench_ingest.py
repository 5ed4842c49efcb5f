"""`kvpulse bench ingest`: events per CPU second from a recorded journal to the SQLite store.

The simulated engine records a trace first, in a process of its own. Then the agent's own loop, with
its own settings, stores that journal: what is timed is the CPU time of reading, the whole ledger,
and committing. After that the first 200,000 events are checked against a ledger of plain loops.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from agent.chunks.chunk import Stretch
from agent.commands.bench_folder import fast_folder
from agent.commands.bench_ingest_postgres import measure_postgres
from agent.commands.bench_ingest_run import ingest
from agent.commands.exit_codes import ExitCode
from agent.config import AgentConfig
from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from agent.ledger.plain_ledger import PlainLedger
from agent.reads.reads import open_reads
from agent.sources.journal import JournalFolder
from kvpulse.reader import StreamReader

CHECKED_EVENTS: Final = 200_000
WORKLOAD: Final = "workload"  # the replay's own seeded one
# A production trace that lies beside some checkouts; the figure in DESIGN.md is of this one.
MOONCAKE: Final = (
    Path(__file__).parents[3] / "shared" / "traces" / "mooncake_conversation_0-1800s.jsonl"
)
JOURNAL_MIB: Final = 4096


@dataclass(frozen=True, slots=True)
class IngestFigures:
    """What `--json` prints. Bytes are those of the whole store file, rollups and all."""

    events: int
    events_per_cpu_second: float
    bytes_per_event: float  # without content hashes
    bytes_per_event_with_hashes: float
    chunk_bytes_per_event: float  # the events alone, without content hashes
    peak_rss_mb: float
    cpu_seconds: float
    checked_events: int
    differences: list[str]
    audits_passed: int
    audits_failed: int
    laws_failed: int


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse bench ingest`."""
    arguments = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kvpulse-bench-", dir=fast_folder()) as folder:
        journal = arguments.journal or Path(folder) / "journal"
        if arguments.journal is None and not _record(arguments, journal):
            return ExitCode.UNREACHABLE
        if not JournalFolder(journal).streams():
            print(f"no stream under {journal}", file=sys.stderr)
            return ExitCode.UNREACHABLE
        figures = measure(journal, Path(folder))
        other = measure_postgres(journal, arguments.postgres) if arguments.postgres else None
    facts = {**asdict(figures), **(other.as_json() if other else {})}
    words = _in_words(figures) + (f"\n{other.in_words()}" if other else "")
    print(json.dumps(facts) if arguments.json else words)
    wrong = figures.differences or figures.audits_failed or figures.laws_failed
    return ExitCode.BAD_ANSWER if wrong else ExitCode.GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse bench ingest", description=__doc__)
    parser.add_argument(
        "--trace",
        default=str(MOONCAKE) if MOONCAKE.exists() else WORKLOAD,
        help="trace file, or 'workload' for a seeded one of the same shape; default %(default)s",
    )
    parser.add_argument("--seconds", type=float, help="stop the trace after so much engine time")
    parser.add_argument("--journal", type=Path, help="measure this journal; record nothing")
    parser.add_argument(
        "--postgres", metavar="URL", help="store it in this empty database as well; it stays there"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _record(arguments: argparse.Namespace, journal: Path) -> bool:
    """Let the simulated engine record the trace, in a process of its own."""
    journal.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "kvpulse", "replay", arguments.trace, "--speed", "max"]
    command += ["--journal", str(journal), "--max-journal-mib", str(JOURNAL_MIB), "--json"]
    if arguments.seconds is not None:
        command += ["--seconds", str(arguments.seconds)]
    print(f"recording {arguments.trace} …", file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(
            f"kvpulse replay ended with {done.returncode}: {done.stderr[-2000:]}", file=sys.stderr
        )
    return done.returncode == 0


class Weight(NamedTuple):
    """Bytes of stored chunks, and those of them that hold content hashes."""

    chunk_bytes: int
    hash_bytes: int


def measure(journal: Path, folder: Path) -> IngestFigures:
    """Ingest a journal into a new store, then hold its first events against plain loops."""
    path = folder / "bench.db"
    done = ingest(AgentConfig(journal=journal, store=str(path)))
    weight = weigh_chunks(str(path))
    checked = check_first_events(JournalFolder(journal).streams()[0].directory, CHECKED_EVENTS)
    size, events = path.stat().st_size, max(done.events, 1)
    return IngestFigures(
        events=done.events,
        events_per_cpu_second=round(done.events / max(done.cpu_seconds, 1e-9)),
        bytes_per_event=round((size - weight.hash_bytes) / events, 3),
        bytes_per_event_with_hashes=round(size / events, 3),
        chunk_bytes_per_event=round((weight.chunk_bytes - weight.hash_bytes) / events, 3),
        peak_rss_mb=done.peak_rss_mb,
        cpu_seconds=round(done.cpu_seconds, 3),
        checked_events=checked.events,
        differences=checked.differences,
        audits_passed=sum(live.audits_passed for live in done.live),
        audits_failed=sum(live.audits_failed for live in done.live),
        laws_failed=sum(live.laws_failed for live in done.live),
    )


def weigh_chunks(store: str) -> Weight:
    """Ask a store what the chunks of all its engines weigh."""
    reads = open_reads(store)
    try:
        keys = [engine.run_key for engine in reads.engines()]
        chunk_bytes = sum(reads.telemetry(key).chunk_bytes for key in keys)
        return Weight(chunk_bytes, sum(reads.hash_bytes(key) for key in keys))
    finally:
        reads.close()


class Checked(NamedTuple):
    """How the ledger compares with the plain one over a stream's first events."""

    differences: list[str]
    events: int


def check_first_events(directory: Path, num_events: int) -> Checked:
    """Hold the ledger against plain loops."""
    fast: Ledger | None = None
    slow: PlainLedger | None = None
    reader = StreamReader(directory)
    while fast is None or fast.live().counters["events_stored"] < num_events:
        batch = reader.read(8192)
        if batch is None:
            break
        if fast is None or slow is None:
            offset = batch.clock.wall_ns - batch.clock.monotonic_ns
            fast = Ledger(RunShape(batch.total_blocks, batch.host_blocks, batch.block_size))
            slow = PlainLedger(batch.total_blocks, offset)
        fast.apply(batch)
        fast.take()
        slow.apply(Stretch(batch.seq0, batch.records, batch.lane, batch.lane_base))
    reader.close()
    if fast is None or slow is None:
        return Checked(["the stream holds no events"], 0)
    slow.pay_all()
    return Checked(differences(fast, slow), fast.live().counters["events_stored"])


def differences(fast: Ledger, slow: PlainLedger) -> list[str]:
    """Name everything in which the two ledgers differ."""
    core, live = fast.core, fast.live()
    core.owners.references.settle(core.owners.held)
    references = core.owners.references
    holders: dict[int, list[int]] = {}
    for owner, block in zip(
        core.owners.owner[references.slot].tolist(), references.block.tolist(), strict=True
    ):
        holders.setdefault(block, []).append(owner)
    plain_holders = {i: sorted(b.holders) for i, b in enumerate(slow.blocks) if b.holders}
    counters = {
        name: sum(second.counters[name] for second in slow.seconds.values())
        for name in ("allocated", "shared", "freed", "evicted", "cached_new")
    }
    waited = sum(sum(second.waited_ns.values()) for second in slow.seconds.values())
    paid = core.owners.paid_now(core.blocks, core.t_ns)
    mine = [float(paid[slot]) for slot in core.owners.slots.values()]
    its = [slow.sequences[owner].block_ns for owner in core.owners.slots]
    lifetimes = live.histograms["block_lifetime"]
    checks = {
        "counts": core.blocks.count.tolist() == [block.count for block in slow.blocks],
        "states": core.blocks.state.tolist() == [block.state for block in slow.blocks],
        "holders": {b: sorted(owners) for b, owners in holders.items()} == plain_holders,
        "events per kind": {k: n for k, n in enumerate(live.stored) if n} == dict(slow.per_kind),
        "block counters": {name: live.counters[name] for name in counters} == counters,
        "active block-ns": live.counters["active_block_ns"]
        == sum(second.active_ns for second in slow.seconds.values()),
        "waited ns": sum(live.labelled["wait_ns"].values()) == waited,
        "block-ns by sequence": bool(np.allclose(mine, its, rtol=1e-9, atol=1e3)),
        "block lifetimes": (lifetimes.count, lifetimes.sum_ns)
        == (len(slow.lifetimes_ns), sum(slow.lifetimes_ns)),
        "audits": slow.audits_failed == live.audits_failed == 0,
    }
    return [name for name, equal in checks.items() if not equal]


def _in_words(figures: IngestFigures) -> str:
    lines = [
        f"{figures.events:,} events in {figures.cpu_seconds} CPU seconds:"
        f" {figures.events_per_cpu_second:,} a second",
        f"{figures.bytes_per_event} bytes an event in the store, and"
        f" {figures.bytes_per_event_with_hashes} with content hashes;"
        f" {figures.chunk_bytes_per_event} of them are the events themselves",
        f"peak memory {figures.peak_rss_mb} MB",
        f"first {figures.checked_events:,} events against a plain ledger:"
        f" {', '.join(figures.differences) or 'equal'}",
        f"audits passed {figures.audits_passed}, failed {figures.audits_failed};"
        f" laws failed {figures.laws_failed}",
    ]
    return "\n".join(lines)
