"""What the agent's loop shows to its HTTP side: the newest state of each engine, swapped whole.

The loop publishes after each commit; readers on other threads take one immutable `LiveSnapshot` and
never see half of a change. Nothing here takes a clock: the loop passes wall time in.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.exhaustion import Exhaustion
from agent.gpus import GpuReading
from agent.ledger.delta import LiveState
from agent.reads.models import Fingerprint, RunState
from agent.targets.attainment import Attainment
from agent.webhook.outcome import Outcome


@dataclass(frozen=True, slots=True)
class LiveEngine:
    """One engine's newest run as of the last commit."""

    engine: str
    run_id: str
    run_key: int
    started_at_ns: int
    state: RunState
    fingerprint: Fingerprint
    live: LiveState
    last_commit_at_ns: int  # wall clock of the agent
    last_event_at_ns: int | None  # newest event, engine's wall clock
    lag_seconds: float | None  # wall time between the newest event and its commit; None: virtual
    behind_records: int  # committed by the writer, not yet read
    exhaustion: Exhaustion | None = None  # None: not known
    scrape_seconds: float | None = None  # between two looks at its metrics page; None: a journal


@dataclass(frozen=True, slots=True)
class LiveError:
    """A condition that health reports until it is cleared; `subject` names stream or part."""

    subject: str
    text: str
    since_ns: int


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """Everything the HTTP side may say, at one moment."""

    started_at_ns: int
    engines: Mapping[str, LiveEngine] = field(default_factory=dict)
    errors: tuple[LiveError, ...] = ()
    store_writable: bool = True
    store_label: str = ""
    journal: str = ""
    last_loop_at_ns: int | None = None  # the loop is alive
    last_commit_at_ns: int | None = None
    commits: int = 0
    commit_seconds: float = 0.0  # spent in store transactions since the start
    gpus: GpuReading | None = None  # None: nobody looked
    targets: Mapping[str, tuple[Attainment, ...]] = field(default_factory=dict)  # by engine
    webhook: Mapping[Outcome, int] | None = None  # messages that ended; None: there is no webhook


class LiveView:
    """A cell holding the newest `LiveSnapshot`: one loop writes, any thread reads."""

    def __init__(self, started_at_ns: int, *, store_label: str = "", journal: str = "") -> None:
        self._lock = threading.Lock()
        self._snapshot = LiveSnapshot(started_at_ns, store_label=store_label, journal=journal)

    def snapshot(self) -> LiveSnapshot:
        """Return the newest state; it never changes afterwards."""
        return self._snapshot

    def publish(self, engine: LiveEngine, *, commit_seconds: float) -> None:
        """Show an engine's state after its commit succeeded."""
        with self._lock:
            now = self._snapshot
            self._snapshot = replace(
                now,
                engines={**now.engines, engine.engine: engine},
                store_writable=True,
                last_commit_at_ns=engine.last_commit_at_ns,
                commits=now.commits + 1,
                commit_seconds=now.commit_seconds + commit_seconds,
            )

    def note_loop(self, now_ns: int) -> None:
        """State that the loop went round once more."""
        with self._lock:
            self._snapshot = replace(self._snapshot, last_loop_at_ns=now_ns)

    def note_error(self, subject: str, text: str, now_ns: int) -> None:
        """Report a condition; the same subject keeps the time it was first seen."""
        with self._lock:
            known = {error.subject: error for error in self._snapshot.errors}
            since = known[subject].since_ns if subject in known else now_ns
            known[subject] = LiveError(subject, text, since)
            self._snapshot = replace(self._snapshot, errors=tuple(known.values()))

    def clear_error(self, subject: str) -> None:
        """Take a condition back."""
        with self._lock:
            left = tuple(error for error in self._snapshot.errors if error.subject != subject)
            if len(left) != len(self._snapshot.errors):
                self._snapshot = replace(self._snapshot, errors=left)

    def note_gpus(self, reading: GpuReading) -> None:
        """Show what the GPUs were just seen doing."""
        with self._lock:
            self._snapshot = replace(self._snapshot, gpus=reading)

    def note_targets(self, engine: str, attainments: tuple[Attainment, ...]) -> None:
        """Show how an engine does against its targets."""
        with self._lock:
            targets = {**self._snapshot.targets, engine: attainments}
            self._snapshot = replace(self._snapshot, targets=targets)

    def note_webhook(self, counts: Mapping[Outcome, int]) -> None:
        """Show what became of the messages to a webhook so far."""
        with self._lock:
            self._snapshot = replace(self._snapshot, webhook=counts)

    def note_store(self, *, writable: bool) -> None:
        """State whether the last transaction could be committed."""
        with self._lock:
            self._snapshot = replace(self._snapshot, store_writable=writable)
