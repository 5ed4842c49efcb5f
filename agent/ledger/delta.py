"""The values that the ledger hands out: to the store, the exporter and the health check.

Every time here is engine time in monotonic ns. `wall_offset_ns` is one number for a whole run;
added to an engine time it gives wall time in ns UTC. Rollup intervals begin at whole wall seconds.
Labels are the lower-case names of the codes in `kvpulse.events`, and tenants' aliases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from agent.head_of_line import HeadOfLine
from agent.rollups.histogram import Histogram

MAX_NAMED: Final = 20
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RunShape:
    """What a run's blocks look like; from the segment header."""

    total_blocks: int
    host_blocks: int
    block_size: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of events as one blob."""

    seq0: int  # of the first record, u64
    num_records: int
    num_events: int
    t0_ns: int
    t1_ns: int
    blob: bytes
    crc: int  # CRC32 of the blob's payload, also inside the blob
    hash_bytes: int  # of the blob's bytes, those that hold content hashes


class RollupRow(NamedTuple):
    """One interval, replacing any row already stored for it."""

    tier_seconds: int
    t_ns: int  # start of the interval
    values: tuple[int | None, ...]  # in the order of rollup_metrics.COLUMNS; None: not measured


class LatencyRow(NamedTuple):
    """One latency metric over one interval, replacing any row already stored for it."""

    tier_seconds: int
    t_ns: int
    metric: str
    num_samples: int
    sum_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    histogram: bytes  # Histogram.decode() reads it


class LabelledRow(NamedTuple):
    """One label of a labelled metric over one interval, replacing any row already stored."""

    tier_seconds: int
    t_ns: int
    family: str
    label: str
    value: int


class RequestRow(NamedTuple):  # a dataclass of so many fields takes twice as long to make
    """One sequence as known now, replacing its row; None is not measured (or not yet)."""

    owner: int
    parent: int  # sequence number of the request's first sequence; 0: this is it
    tenant: str | None
    state: str  # waiting, running, preempted, swapped, finished, cancelled, rejected, unknown
    arrived_ns: int | None
    admitted_ns: int | None
    first_token_ns: int | None
    ended_ns: int | None
    end_reason: str | None
    reject_reason: str | None
    prompt_tokens: int | None
    max_tokens: int | None
    asked_max_tokens: int | None
    output_tokens: int | None
    priority: int
    tier: int
    retry: int
    deadline_ns: int | None
    request_hash: int  # keyed hash of the client's id, u64; 0: none
    logical_blocks: int | None  # table entries: now, or at the peak once ended
    physical_blocks: int | None
    shared_within: int | None
    shared_across: int | None
    peak_blocks: int
    filled_slots: int | None
    block_seconds: float | None
    wait_ns: Mapping[str, int] | None  # by cause, before the first admission
    wait_pool_ns: int | None
    wait_scheduler_ns: int | None
    wait_quota_ns: int | None
    wait_transfer_ns: int | None
    wait_after_preempt_ns: int | None
    preemptions: int
    preempted_by: tuple[int, ...]
    recomputed_tokens: int | None
    prefix_hit_tokens: int
    alloc_failures: Mapping[str, int]  # by cause
    time_to_first_block_ns: int | None
    spans_gap: bool
    frontend_ns: int | None = None  # in the server, before it arrived in the engine
    wait_cause: str | None = None  # why it waits now
    blocker: int | None = None  # behind whom it waits now
    blocked_others_ns: int = 0  # others' waiting in which it was named as the blocker
    needed_blocks: int | None = None  # stated when it waited and could not get them
    tokens_lost: int = 0  # by preemptions
    tokens_found: int = 0  # of those, found again on resuming
    blocks_kept: int = 0  # of the blocks that preemptions freed, kept as cached
    swaps: int = 0  # of its preemptions, those by swap
    host_blocks: int = 0  # held in host memory now


@dataclass(frozen=True, slots=True)
class GapRow:
    """A stretch known to be missing."""

    seq0: int
    seq1: int  # first sequence number after it
    t0_ns: int
    t1_ns: int
    why: str
    lost: tuple[int, ...]  # events per kind, 64 places


class Named(NamedTuple):
    """Blocks and sequences that something is about: a few of each, and how many there are."""

    blocks: tuple[int, ...] = ()
    num_blocks: int = 0
    owners: tuple[int, ...] = ()
    num_owners: int = 0

    @classmethod
    def of(cls, blocks: Ids, owners: Ids) -> Self:
        """Name the first of some blocks and sequences, each once."""
        blocks, owners = np.unique(blocks), np.unique(owners)
        first_blocks, first_owners = blocks[:MAX_NAMED].tolist(), owners[:MAX_NAMED].tolist()
        return cls(tuple(first_blocks), len(blocks), tuple(first_owners), len(owners))


NOBODY: Final = Named()


class LawEvidence(NamedTuple):
    """What a failed check saw. Both sides in words; "" where there are no two sides."""

    expected: str
    found: str
    named: Named = NOBODY


@dataclass(frozen=True, slots=True)
class LawFailure:
    """A law or an audit that did not hold, in one check."""

    law: str
    detail: str
    t_ns: int
    expected: str = ""
    found: str = ""
    named: Named = NOBODY

    @classmethod
    def of_sequence(cls, law: str, owner: int, t_ns: int, sides: tuple[str, str]) -> Self:
        """Return a failure of one sequence; `sides` are what is expected and what was found."""
        expected, found = sides
        detail = f"sequence {owner}: {found}, not {expected}"
        return cls(law, detail, t_ns, expected, found, Named((), 0, (owner,), 1))

    @property
    def evidence(self) -> LawEvidence:
        """What the check saw."""
        return LawEvidence(self.expected, self.found or self.detail, self.named)


@dataclass(frozen=True, slots=True)
class BrokenLaw:
    """A law that does not hold: one condition, however many checks find it so."""

    law: str
    opened_ns: int
    closed_ns: int | None  # None: it does not hold now
    evidence: LawEvidence  # of the first check


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Audits since the last take: the engine's own account held against the ledger."""

    passed: int = 0
    failed: int = 0
    failures: tuple[LawFailure, ...] = ()  # of audits and of laws


@dataclass(frozen=True, slots=True)
class Leak:
    """A block that stayed active after its owner ended; a later row with `ended_ns` closes it."""

    block: int
    owner: int  # UNKNOWN_OWNER: it ended in a gap
    since_ns: int  # when the owner ended; of an unknown one: when the leak was seen first
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The engine's wall clock was set: when that was seen, and by how much (back: below 0)."""

    t_ns: int
    step_ns: int


@dataclass(frozen=True, slots=True)
class HeldBlocks:
    """Blocks that stay active on purpose, without a live sequence."""

    owner: int
    reason: str
    blocks: tuple[int, ...]
    until_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state after a record: where reading the map and resuming the ledger begin."""

    seq: int  # records accounted for: replay begins with this sequence number
    t_ns: int
    num_events: int  # stored events up to here, in this run
    map_blob: bytes  # block_map.decode_map() reads it; kept as history
    state_blob: bytes  # ledger_state.decode_state() reads it; only the newest is needed


@dataclass(frozen=True, slots=True)
class LedgerDelta:
    """Everything new since the last take, to be stored in one transaction."""

    seq: int  # records accounted for: the next one has this sequence number
    t_ns: int  # engine time of the newest record
    wall_offset_ns: int
    chunks: tuple[Chunk, ...] = ()
    rollups: tuple[RollupRow, ...] = ()
    latencies: tuple[LatencyRow, ...] = ()
    labelled: tuple[LabelledRow, ...] = ()
    requests: tuple[RequestRow, ...] = ()
    gaps: tuple[GapRow, ...] = ()
    audits: AuditResult = field(default_factory=AuditResult)
    broken_laws: tuple[BrokenLaw, ...] = ()  # new and changed ones
    leaks: tuple[Leak, ...] = ()  # new and changed ones
    clock_steps: tuple[ClockStep, ...] = ()  # new ones
    stored: tuple[int, ...] = (0,) * 64  # events per kind, since the last take
    lost: tuple[int, ...] = (0,) * 64
    unknown: int = 0  # records of kinds this version does not know, since the last take
    snapshot: Snapshot | None = None
    strings: Mapping[int, str] = field(default_factory=dict)  # new ones
    config: Mapping[str, object] | None = None  # when stated anew


class WaitNow(NamedTuple):
    """Who waits for one cause at this moment."""

    num_waiting: int
    oldest_since_ns: int | None  # the longest wait under this cause, among those waiting now


@dataclass(frozen=True, slots=True)
class LiveState:
    """What is known now, for the exporter and the health check. Totals are since the run began."""

    t_ns: int  # engine time of the newest record; 0: none yet
    wall_offset_ns: int
    shape: RunShape
    gauges: Mapping[str, int | None]  # rollup_metrics.GAUGES
    counters: Mapping[str, int]  # rollup_metrics.COUNTERS
    labelled: Mapping[str, Mapping[str, int]]  # family → label → total (or gauge)
    histograms: Mapping[str, Histogram]  # rollup_metrics.LATENCIES
    waits: Mapping[str, WaitNow]  # every cause by name
    stored: tuple[int, ...]  # events per kind, 64 places
    lost: tuple[int, ...]
    unknown: int
    audits_passed: int
    audits_failed: int
    laws_failed: int
    last_failures: tuple[LawFailure, ...]  # the newest few
    balanced: bool | None  # None: after a gap, until the next keyframe
    leaks: tuple[Leak, ...]  # open ones
    held: tuple[HeldBlocks, ...]
    refused_frees: int
    host_active_blocks: int | None
    last_step: int | None
    last_step_ns: int | None
    num_gaps: int
    largest_free_run: int | None
    config: Mapping[str, object] | None
    tenants: Mapping[int, str]
    waiting_since_ns: int | None = None  # when the sequence waiting longest began; None: nobody
    head_of_line: HeadOfLine | None = None
    host_total_blocks: int | None = None  # None: the engine has no host tier
    host_unreleased: Mapping[int, int] | None = None  # blocks by ended sequence; None: not known
    waiting_by_priority: Mapping[str, int] = field(default_factory=dict)
    largest_blocks_needed: int | None = None  # by one live sequence, to its token limit
    open_outlived_block_ns: int = 0  # of stretches that last; see `outlived_block_ns`
    broken_laws: tuple[BrokenLaw, ...] = ()  # that do not hold now
    num_clock_steps: int = 0
    clock_step: ClockStep | None = None  # the newest
