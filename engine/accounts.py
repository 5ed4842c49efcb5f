"""What pool and scheduler count of their own acts, apart from whoever records them.

The demo holds these against what the agent stored: events lost on the way cannot hide in a count
that was taken at the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvpulse.events import FinishReason, Kind, RejectReason

SECOND_NS: Final = 1_000_000_000


class Tally:
    """Acts so far, as plain integers that the scheduler adds to."""

    __slots__ = (
        "admits",
        "allocate_failures",
        "arrivals",
        "audits",
        "cancelled",
        "configs",
        "defines",
        "finished",
        "finished_forks",
        "first_tokens",
        "forks",
        "heartbeats",
        "preempts",
        "prefix_hit_tokens",
        "prefix_hits",
        "prefix_queried_tokens",
        "rejected",
        "resumes",
        "steps",
        "waits",
    )

    def __init__(self) -> None:
        self.admits = 0
        self.allocate_failures = 0
        self.arrivals = 0
        self.audits = 0
        self.cancelled = 0
        self.configs = 0
        self.defines = 0
        self.first_tokens = 0
        self.forks = 0
        self.heartbeats = 0
        self.preempts = 0
        self.prefix_hits = 0
        self.prefix_hit_tokens = 0
        self.prefix_queried_tokens = 0
        self.resumes = 0
        self.steps = 0
        self.waits = 0
        self.finished: dict[FinishReason, int] = {}
        self.finished_forks: dict[FinishReason, int] = {}  # those of them that split off another
        self.rejected: dict[RejectReason, int] = {}

    def acts(self) -> dict[Kind, int]:
        """Return the acts per kind of event, those of the pool and keyframes excepted."""
        return {
            Kind.ALLOCATE_FAILED: self.allocate_failures,
            Kind.ARRIVE: self.arrivals,
            Kind.WAIT: self.waits,
            Kind.ADMIT: self.admits,
            Kind.REJECT: sum(self.rejected.values()),
            Kind.PREFIX_HIT: self.prefix_hits,
            Kind.PREEMPT: self.preempts,
            Kind.RESUME: self.resumes,
            Kind.FORK: self.forks,
            Kind.FIRST_TOKEN: self.first_tokens,
            Kind.FINISH: sum(self.finished.values()),
            Kind.STEP: self.steps,
            Kind.POOL: self.audits,
            Kind.HEARTBEAT: self.heartbeats,
            Kind.CONFIG: self.configs,
            Kind.DEFINE: self.defines,
        }


class SecondsCounter:
    """Counts the engine seconds in which something held for at least a moment."""

    def __init__(self) -> None:
        self._seconds = 0
        self._since_ns: int | None = None
        self._last_second = -1

    def set(self, holds: bool, now_ns: int) -> None:
        """Say whether it holds from now on."""
        if self._since_ns is not None:
            self._count_until(now_ns)
        self._since_ns = now_ns if holds else None

    def seconds(self) -> int:
        """Return the seconds counted until the last time it was set."""
        return self._seconds

    def _count_until(self, now_ns: int) -> None:
        assert self._since_ns is not None, "called while it holds"
        first = max(self._since_ns // SECOND_NS, self._last_second + 1)
        last = now_ns // SECOND_NS
        if last >= first:
            self._seconds += last - first + 1
            self._last_second = last


@dataclass(frozen=True, slots=True)
class Accounts:
    """An engine's account of itself.

    Attributes:
        acts: Events per kind that the acts amount to: blocks for block kinds, 1 for all others.
        requests: Requests that arrived, refused ones included.
        finished_by_reason: Ends of sequences by reason, "rejected" among them.
        forks_finished_by_reason: Those among them of further samples and beams; without them the
            ends are as many as the requests.
        seconds_with_pool_wait: Engine seconds in which a sequence waited for blocks.
    """

    acts: Mapping[Kind, int]
    requests: int = 0
    finished_by_reason: Mapping[str, int] = field(default_factory=dict)
    forks_finished_by_reason: Mapping[str, int] = field(default_factory=dict)
    rejected_by_reason: Mapping[str, int] = field(default_factory=dict)
    preemptions: int = 0
    prefix_hit_tokens: int = 0
    prefix_queried_tokens: int = 0
    cancelled: int = 0
    seconds_with_pool_wait: int = 0
    steps: int = 0
    active_blocks: int = 0
    cached_blocks: int = 0
    free_blocks: int = 0
    leaked_blocks: int = 0

    @property
    def num_events(self) -> int:
        """Return all events together."""
        return sum(self.acts.values())

    def as_json(self) -> dict[str, object]:
        """Return the account as the commands print it."""
        per_kind = {kind.name.lower(): n for kind, n in sorted(self.acts.items()) if n}
        return {
            "events_emitted": self.num_events,
            "per_kind": per_kind,
            "requests": self.requests,
            "finished_by_reason": dict(self.finished_by_reason),
            "forks_finished_by_reason": dict(self.forks_finished_by_reason),
            "rejected_by_reason": dict(self.rejected_by_reason),
            "preemptions": self.preemptions,
            "prefix_hit_tokens": self.prefix_hit_tokens,
            "cancelled": self.cancelled,
            "seconds_with_pool_wait": self.seconds_with_pool_wait,
            "steps": self.steps,
            "active_blocks": self.active_blocks,
            "cached_blocks": self.cached_blocks,
            "free_blocks": self.free_blocks,
            "leaked_blocks": self.leaked_blocks,
        }
