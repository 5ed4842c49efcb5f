"""An incident as one file: a zip with what somebody needs who was not there.

Everything in it comes out of the store, which holds nothing of a prompt but lengths and keyed
hashes. `manifest.json` comes last and names every other member with its size and sha256.
"""

import hashlib
import json
import platform
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import IO, Final

from agent.block_map_document import map_document
from agent.incidents.bundle_tables import ABOUT, Window, table_text
from agent.incidents.document import incident_document
from agent.reads.incidents import IncidentRow, StoredIncident
from agent.reads.models import RunRow
from agent.reads.reads import Reads
from agent.store.retention import AROUND_NS
from agent.store.revision import HEAD
from kvpulse.command import version

FORMAT: Final = 1
NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Member:
    """One file in a bundle."""

    name: str
    about: str
    bytes: int
    sha256: str


@dataclass(slots=True)
class Bundle:
    """A bundle while it is written.

    Attributes:
        left_out: What could not be had, by the name that its member would have, and why.
    """

    archive: zipfile.ZipFile
    members: list[Member] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, about: str, text: str) -> None:
        """Write one member."""
        data = text.encode("utf-8")
        self.archive.writestr(name, data)
        self.members.append(Member(name, about, len(data), hashlib.sha256(data).hexdigest()))

    def add_json(self, name: str, about: str, document: object) -> None:
        """Write one member that is JSON."""
        self.add(name, about, json.dumps(document, indent=1) + "\n")


def write_bundle(
    file: IO[bytes],
    reads: Reads,
    stored: StoredIncident,
    settings: dict[str, object],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Bundle:
    """Write an incident's bundle.

    Args:
        file: Written from its beginning to its end; it need not be able to seek.
        settings: The agent's, without secrets.

    Raises:
        StoreUnreadable: The store cannot be read any more.
    """
    row = stored.row
    window = incident_window(stored)
    runs = _runs(reads, row.engine, window)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        bundle = Bundle(archive)
        bundle.add_json("incident.json", "verdict, evidence, times", incident_document(stored))
        _add_maps(bundle, reads, stored)
        for table, about in ABOUT.items():
            found = table_text(reads, table, runs, window)
            bundle.add(f"{table}.csv", about, found.text)
            if not found.is_whole:
                bundle.left_out[f"{table}.csv"] = f"all but the first {found.num_rows} rows"
        bundle.add_json(
            "marks.json", "restarts, gaps, configurations, leaks", _marks(reads, runs, window)
        )
        bundle.add_json("config.json", "what engine and agent were told", _config(runs, settings))
        bundle.add_json("versions.json", "what wrote this", _versions(runs))
        bundle.add_json("manifest.json", "this list", _manifest(bundle, row, window, runs, now()))
    return bundle


def incident_window(stored: StoredIncident) -> Window:
    """Return the time that belongs to an incident: what retention keeps of it."""
    row = stored.row
    end_ns = row.closed_at_ns if row.closed_at_ns is not None else row.seen_at_ns
    return Window(row.opened_at_ns - AROUND_NS, end_ns + AROUND_NS)


def _manifest(
    bundle: Bundle, row: IncidentRow, window: Window, runs: list[RunRow], created_at: datetime
) -> dict[str, object]:
    return {
        "format": FORMAT,
        "incident": row.key,
        "engine": row.engine,
        "verdict": row.verdict,
        "created_at": created_at.isoformat(timespec="seconds"),
        "window": {
            "start_ns": window.start_ns,
            "end_ns": window.end_ns,
            "tier_seconds": window.tier_seconds,
        },
        "runs": [run.run_id for run in runs],
        "members": [asdict(member) for member in bundle.members],
        "left_out": bundle.left_out,
    }


def _runs(reads: Reads, engine: str, window: Window) -> list[RunRow]:
    return [
        run
        for run in reversed(reads.runs(engine))
        if run.started_at_ns < window.end_ns
        and (run.last_event_at_ns or run.started_at_ns) >= window.start_ns
    ]


def _add_maps(bundle: Bundle, reads: Reads, stored: StoredIncident) -> None:
    row = stored.row
    moments = {
        "open": ("when it was first seen", row.opened_at_ns),
        "peak": ("when it cost most", row.peak_at_ns),
        "close": ("when it was seen last", row.closed_at_ns or row.seen_at_ns),
    }
    for moment, (about, at_ns) in moments.items():
        name = f"block_map_{moment}.json"
        blocks = reads.block_map(row.run_key, at_ns)
        if blocks is None:
            bundle.left_out[name] = "nothing is stored of the engine's blocks at that time"
        else:
            document = {"asked_at_ns": at_ns, **map_document(blocks)}
            bundle.add_json(name, f"every block and its owners {about}", document)


def _marks(reads: Reads, runs: list[RunRow], window: Window) -> list[dict[str, object]]:
    return [
        {"run_id": run.run_id, "t_ns": mark.t_ns, "kind": mark.kind.value, "text": mark.text}
        for run in runs
        for mark in reads.marks(run.run_key, window.start_ns, window.end_ns)
    ]


def _config(runs: list[RunRow], settings: dict[str, object]) -> dict[str, object]:
    engines = [{"run_id": run.run_id, **_run(run), **run.fingerprint} for run in runs]
    return {"engine_runs": engines, "agent": settings}


def _run(run: RunRow) -> dict[str, object]:
    return {
        "started_ns": run.started_at_ns,
        "ended_ns": run.ended_at_ns,
        "state": run.state.value,
        "total_blocks": run.total_blocks,
        "block_size": run.block_size,
    }


def _versions(runs: list[RunRow]) -> dict[str, object]:
    return {
        "kvpulse": version(),
        "store_revision": HEAD,
        "python": platform.python_version(),
        "engine": {run.run_id: run.fingerprint.get("version") for run in runs},
    }
