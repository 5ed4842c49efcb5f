"""The second half of `kvpulse bench ingest --postgres URL`: the same journal into Postgres.

CPU seconds are the agent's; the server's are its own affair and differ with its settings. The
database must be an empty one, and keeps what was stored: nobody's history is measured over.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from agent.commands.bench_ingest_run import ingest
from agent.config import AgentConfig
from agent.errors import ConfigError
from agent.reads.reads import open_reads
from agent.store.connection import parse_address
from agent.store.store import Store

SUFFIX = "_postgres"


@dataclass(frozen=True, slots=True)
class PostgresFigures:
    """What is added to the figures, each name with the suffix."""

    events: int
    events_per_cpu_second: float
    cpu_seconds: float
    bytes_per_event_with_hashes: float  # tables and indexes, as Postgres counts them

    def as_json(self) -> dict[str, object]:
        """Return the figures under their names with the suffix."""
        return {name + SUFFIX: value for name, value in asdict(self).items()}

    def in_words(self) -> str:
        """Say the figures in one line."""
        return (
            f"Postgres: {self.events:,} events in {self.cpu_seconds} CPU seconds of the agent:"
            f" {self.events_per_cpu_second:,} a second;"
            f" {self.bytes_per_event_with_hashes} bytes an event in tables and indexes"
        )


def measure_postgres(journal: Path, url: str) -> PostgresFigures:
    """Ingest a journal into an empty Postgres database.

    Raises:
        ConfigError: It is another kind of database, or not empty.
        StoreUnwritable: It cannot be reached or written.
    """
    require_empty_database(url)
    done = ingest(AgentConfig(journal=journal, store=url))
    reads = open_reads(url)
    try:
        size = max((reads.telemetry(row.run_key).store_bytes for row in reads.engines()), default=0)
    finally:
        reads.close()
    return PostgresFigures(
        events=done.events,
        events_per_cpu_second=round(done.events / max(done.cpu_seconds, 1e-9)),
        cpu_seconds=round(done.cpu_seconds, 3),
        bytes_per_event_with_hashes=round(size / max(done.events, 1), 3),
    )


def require_empty_database(url: str) -> None:
    """Raise unless a Postgres database has no runs; it has the tables then.

    Raises:
        ConfigError: It is another kind of database, or not empty.
        StoreUnwritable: It cannot be reached or written.
    """
    if parse_address(url).url is None:
        raise ConfigError("--postgres", url, "postgresql://user@host/database")
    Store.open(url).close()  # with its tables, so that it can be asked
    reads = open_reads(url)
    try:
        if reads.engines():
            label = parse_address(url).label
            raise ConfigError("--postgres", label, "an empty database: this one has runs")
    finally:
        reads.close()
