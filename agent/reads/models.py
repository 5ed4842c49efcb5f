"""What the reading side of the store answers with: frozen values, no connection inside.

Times ending in `_ns` or `_at_ns` are wall-clock nanoseconds UTC; durations are nanoseconds too.
`None`, and NaN in an array, mean that nobody measured the value; they never stand for zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
Fingerprint = Mapping[str, str | int | float | bool | None]


class RunState(StrEnum):
    """What is known of a run's writer."""

    LIVE = "live"
    FINISHED = "finished"  # closed its stream itself
    DEAD = "dead"  # went away without closing it


class RequestState(StrEnum):
    """Where a sequence stands, or how it ended."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    FINISHED = "finished"  # stop or length
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    ERROR = "error"
    REJECTED = "rejected"
    UNKNOWN = "unknown"  # its end fell into a gap


class MarkKind(StrEnum):
    """What a mark on a time chart stands for."""

    RESTART = "restart"
    GAP = "gap"
    CONFIG = "config"
    LEAK = "leak"
    AUDIT_FAILED = "audit_failed"
    POOL = "pool"  # its size changed
    CLOCK_STEP = "clock_step"  # the engine's wall clock was set
    INCIDENT = "incident"  # opened


class RequestOrder(StrEnum):
    """How `Reads.requests` sorts; the largest or newest comes first."""

    STARTED = "started"
    WAIT = "wait"
    BLOCK_SECONDS = "block_seconds"
    BLOCKS = "blocks"
    PREEMPTIONS = "preemptions"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of one engine: from its start to its end, with its totals."""

    engine: str
    run_id: str
    run_key: int
    started_at_ns: int
    ended_at_ns: int | None
    last_event_at_ns: int | None
    state: RunState
    fingerprint: Fingerprint
    total_blocks: int
    host_blocks: int
    block_size: int
    num_gaps: int
    events_stored: int
    events_lost: int
    audits_passed: int
    audits_failed: int


@dataclass(frozen=True, slots=True)
class EngineRow(RunRow):
    """The newest run of an engine, with what its pool and queue looked like last."""

    active_blocks: int | None = None
    cached_blocks: int | None = None
    free_blocks: int | None = None
    waiting: int | None = None
    running: int | None = None
    swapped: int | None = None  # of those waiting, how many are in host memory
    host_active_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Scalar metrics over one time grid: `values[name][i]` belongs to the interval at `t_ns[i]`."""

    t_ns: Int64Array
    values: dict[str, Float64Array]
    tier_seconds: int


@dataclass(frozen=True, slots=True)
class LatencySeries:
    """A latency's quantiles per interval, in seconds; NaN where nothing was measured."""

    t_ns: Int64Array
    count: Int64Array
    p50: Float64Array
    p95: Float64Array
    p99: Float64Array
    max: Float64Array
    tier_seconds: int


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """A latency over a whole window, merged exactly from its intervals; in seconds."""

    count: int
    sum: float
    min: float
    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class LabelledSeries:
    """One family of labelled values over one time grid; 0 where a counter did not move."""

    t_ns: Int64Array
    values: dict[str, Float64Array]
    tier_seconds: int


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One sequence: its blocks, waits, preemptions and end."""

    owner: int
    parent: int
    tenant: str
    state: RequestState
    arrived_at_ns: int | None
    admitted_at_ns: int | None
    first_token_at_ns: int | None
    ended_at_ns: int | None
    end_reason: str | None
    reject_reason: str | None
    prompt_tokens: int | None
    max_tokens: int | None
    asked_max_tokens: int | None
    output_tokens: int | None
    logical_blocks: int | None
    physical_blocks: int | None
    shared_within: int | None
    shared_across: int | None
    peak_blocks: int | None
    filled_slots: int | None
    block_seconds: float | None
    wait_ns: dict[str, int]
    wait_pool_ns: int | None
    wait_scheduler_ns: int | None
    wait_quota_ns: int | None
    wait_transfer_ns: int | None
    wait_after_preempt_ns: int | None
    preemptions: int
    preempted_by: list[int]
    recomputed_tokens: int | None
    prefix_hit_tokens: int | None
    alloc_failures: int
    time_to_first_block_ns: int | None
    alloc_failures_by_cause: dict[str, int] = field(default_factory=dict)
    deadline_at_ns: int | None = None
    priority: int = 0
    tier: int = 0
    retry: int = 0
    spans_gap: bool = False  # values that a gap made unknowable are None
    frontend_ns: int | None = None  # in the server, before it arrived in the engine
    wait_cause: str | None = None  # why it waits now
    blocker: int | None = None  # behind whom it waits now
    blocked_others_ns: int | None = None  # others' waiting in which it was named as the blocker
    needed_blocks: int | None = None  # stated when it could not get them
    tokens_lost: int | None = None  # by preemptions
    tokens_found: int | None = None  # of those, found again on resuming
    blocks_kept: int | None = None  # of the blocks that preemptions freed, kept as cached
    swaps: int | None = None  # of its preemptions, those by swap
    host_blocks: int | None = None  # in host memory now


class WaitingSequence(NamedTuple):
    """Who waits now, and for how much."""

    owner: int
    needed_blocks: int | None  # stated when it could not get them
    prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class TenantRow:
    """What a tenant's sequences alive in a window came to, over their whole lives."""

    SUMS: ClassVar = (
        *("output_tokens", "block_seconds", "preemptions", "prefix_hit_tokens"),
        *("wait_pool_ns", "wait_scheduler_ns", "wait_quota_ns", "wait_transfer_ns"),
        *("wait_after_preempt_ns",),
    )
    tenant: str  # its alias; empty for none
    num_sequences: int
    num_requests: int
    num_rejected: int
    num_at_quota: int  # that wait for their tenant's quota now
    held_blocks: int | None  # by its live sequences; a block that two of them share counts twice
    prompt_tokens: int | None  # of each request once, however many samples it has
    output_tokens: int | None
    block_seconds: float | None
    preemptions: int | None
    prefix_hit_tokens: int | None
    wait_pool_ns: int | None
    wait_scheduler_ns: int | None
    wait_quota_ns: int | None
    wait_transfer_ns: int | None
    wait_after_preempt_ns: int | None


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One line of a sequence's timeline.

    Attributes:
        t_ns: When.
        kind: The event kind's name.
        text: The event as a sentence without its subject.
        cause: The wait cause that it states, if any.
        about: Whose event it is, where it is another sequence's that names this one; else None.
    """

    t_ns: int
    kind: str
    text: str
    cause: str | None = None
    about: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to the run or its telemetry, to be drawn on every time chart."""

    t_ns: int
    kind: MarkKind
    text: str


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The engine's wall clock was set; `t_ns` is on the run's own clock, which goes on."""

    t_ns: int
    step_ns: int  # below 0: back

    @property
    def sentence(self) -> str:
        """What happened, as a clause."""
        return f"the wall clock stepped by {self.step_ns / 1e9:+,.1f} s"


@dataclass(frozen=True, slots=True)
class GapRow:
    """A stretch of the stream known to be missing, and how many events of each kind it held."""

    seq0: int
    seq1: int  # first sequence number after it
    start_ns: int
    end_ns: int
    why: str
    lost: dict[str, int]


class KindTotal(NamedTuple):
    """Events of one kind: how many the store accounts for, and how many are known lost."""

    stored: int
    lost: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far the agent has read a stream."""

    segment: int
    record: int
    seq: int


@dataclass(frozen=True, slots=True)
class TelemetryHealth:
    """How much of what the engine stated has reached the store, and how fresh that is."""

    position: Position | None
    last_commit_at_ns: int | None
    last_event_at_ns: int | None
    behind_records: int | None
    stored: int
    lost: int
    share_ratio: float | None
    audits_passed: int
    audits_failed: int
    last_audit_failure: str | None
    unknown_records: int
    num_chunks: int
    chunk_bytes: int
    store_bytes: int
    agent_seen_at_ns: int | None = None  # by its own clock; None: no agent follows the run


@dataclass(frozen=True, slots=True)
class Leak:
    """A block still active after its owner ended; `ended_at_ns` is when it was given back."""

    block: int
    owner: int  # kvpulse.events.UNKNOWN_OWNER: it ended in a gap
    since_ns: int  # when its owner ended; of an unknown one: when the leak was seen first
    ended_at_ns: int | None
