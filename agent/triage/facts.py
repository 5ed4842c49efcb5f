"""What triage knows of one engine and one window: numbers, frozen; no connection, no clock.

`None` means that nobody measured it; `Facts.missing` says why. Rules read this and nothing else.
Times are wall ns UTC on the run's own clock; every duration is in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.head_of_line import HeadOfLine
from agent.reads.models import ClockStep, GapRow, LatencySummary, Leak, RunState
from agent.targets.attainment import Attainment


@dataclass(frozen=True, slots=True)
class Resize:
    """The pool's total changed."""

    at_ns: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The pool: at the end of the window where nothing else is said."""

    total: int | None
    first_total: int | None  # when the run began
    active: int | None
    cached: int | None
    free: int | None
    available_ratio: float  # (free + cached) / total, mean over the window
    resizes: tuple[Resize, ...] = ()  # since the run began, oldest first

    @property
    def available(self) -> int | None:
        """Return the blocks that can be taken: free ones and cached ones."""
        return None if self.total is None or self.active is None else self.total - self.active


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Who waits and who runs, at the end of the window.

    Attributes:
        stuck_seconds: For so long somebody has waited without a break, and nobody was admitted or
            resumed; 0 where one of the two is not so. Never reaches back across a gap.
        stuck_by_cause: Waiting by cause in that time, in sequence-seconds.
        least_needed: The fewest blocks that one of those waiting needs.
        most_needed: The most that one of them needs, and who.
        max_batch_is_guess: Nobody stated the limit; so many ran, unchanging, while others waited.
    """

    waiting: int
    running: int
    live: int
    max_batch: int | None
    stuck_seconds: float = 0.0
    stuck_by_cause: Mapping[str, float] = field(default_factory=dict)
    least_needed: int | None = None
    most_needed: int | None = None
    most_needed_by: int | None = None
    head: HeadOfLine | None = None
    max_batch_is_guess: bool = False


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What was computed.

    Attributes:
        since_step_seconds: Since the last step, while sequences were live; 0 where it just was.
            Never reaches back across a gap.
        slow_ratio: Compute time over what the engine's past predicts for the same work; None
            without a past, or without steps.
        expected_seconds: What it predicts.
    """

    num_steps: int
    compute_seconds: float | None
    prefill_tokens: int
    decode_tokens: int
    recomputed_tokens: int | None
    preempted: int
    since_step_seconds: float = 0.0
    slow_ratio: float | None = None
    expected_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LastingFacts:
    """The minutes that end with the window: they tell what lasts from a burst.

    Attributes:
        seconds: How long they are.
        known_seconds: How long of that the run has been there.
        waits: Waiting by cause, in sequence-seconds.
    """

    seconds: float
    known_seconds: float
    arrived: int
    waits: Mapping[str, float]
    computed_tokens: int
    recomputed_tokens: int


@dataclass(frozen=True, slots=True)
class TrafficFacts:
    """What was asked for."""

    arrived: int | None
    admitted: int
    finished: int
    cancelled: int | None
    rejected: Mapping[str, int] = field(default_factory=dict)  # by reason
    mean_prompt_tokens: float | None = None

    @property
    def came(self) -> int:
        """Return how many came: those that arrived, else those that were let in."""
        return self.admitted if self.arrived is None else self.arrived


@dataclass(frozen=True, slots=True)
class BrokenLaw:
    """A law of the ledger, or an audit, that did not hold."""

    at_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class OwnedBound:
    """More blocks are held than those who run can own: known where nobody tells whose they are.

    Attributes:
        held: Blocks held at the window's end.
        first_held: And at its start.
        running: Sequences that run, each of which owns `most_each` blocks at most.
        no_proof: Why it proves no leak; "" where it does.
    """

    held: int
    first_held: int
    running: int
    most_each: int
    no_proof: str = ""

    @property
    def most(self) -> int:
        """Return the blocks that all of them can own."""
        return self.running * self.most_each


@dataclass(frozen=True, slots=True)
class BookFacts:
    """What the ledger found wrong, in the last `memory_seconds`; leaks are those open now."""

    memory_seconds: float
    leaks: tuple[Leak, ...] = ()
    refused_frees: int = 0
    broken_laws: tuple[BrokenLaw, ...] = ()
    beyond_bound: OwnedBound | None = None  # None: not more is held, or nobody knows


@dataclass(frozen=True, slots=True)
class TelemetryFacts:
    """How much of what the engine stated is known, and how fresh it is.

    Attributes:
        gaps: Those that touch the window.
        clock_steps: Those of the engine's wall clock in the window.
        commit_age_seconds: Since something of a live run was stored; None: it has ended, or there
            is no clock.
        interval_seconds: Between two looks at an engine that is asked now and then.
        is_asked: The engine is known by looks at its metrics page.
        agent_age_seconds: Since an agent that follows the run gave a sign of life; None: there is
            none, or it cannot be told.
    """

    stored_events: int
    lost_events: int
    gaps: tuple[GapRow, ...] = ()
    clock_steps: tuple[ClockStep, ...] = ()
    commit_age_seconds: float | None = None
    interval_seconds: float = 0.0
    is_asked: bool = False
    agent_age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TenantShare:
    """One tenant's part of all active block-seconds, in the window and in the past."""

    tenant: str
    share: float
    active_blocks: float  # mean over the window
    past_share: float | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """The engine's own recent past, without the time of incidents.

    Attributes:
        seconds: How much of it is known.
        arrived_per_second: Median over its minutes.
    """

    start_ns: int
    end_ns: int
    seconds: float
    arrived_per_second: float
    mean_prompt_tokens: float | None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run that is judged."""

    engine: str
    run_id: str
    run_key: int
    state: RunState
    started_at_ns: int
    last_event_at_ns: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the rules may know, for `[start_ns, end_ns)`.

    Attributes:
        waits: Waiting by cause, in sequence-seconds that passed in the window.
        lasting: Some minutes up to the window's end; None: only the window is known.
        latencies: Those that a rule asks for (`agent.triage.gather.JUDGED_LATENCIES`), by metric
            name of `agent.rollups.scalars.LATENCIES`; absent: no sample.
        targets: How the engine does against the targets that were set, over windows that end here.
        waits_are_inferred: The engine does not state why somebody waits.
        since_start: Means since the engine's start, where that is all the past there is:
            `inter_token_seconds`, `prompt_tokens`.
        missing: What is not known (a field's name), and why.
    """

    start_ns: int
    end_ns: int
    run: RunFacts
    pool: PoolFacts | None
    queue: QueueFacts | None
    steps: StepFacts | None
    traffic: TrafficFacts | None
    books: BookFacts
    telemetry: TelemetryFacts
    waits: Mapping[str, float] = field(default_factory=dict)
    lasting: LastingFacts | None = None
    latencies: Mapping[str, LatencySummary] = field(default_factory=dict)
    tenants: tuple[TenantShare, ...] = ()
    past: Past | None = None
    targets: tuple[Attainment, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    waits_are_inferred: bool = False
    since_start: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Return the window's length."""
        return (self.end_ns - self.start_ns) / 1e9

    def held_up(self, *causes: str) -> float:
        """Return how many sequences these causes kept waiting, on average over the window."""
        return sum(self.waits.get(cause, 0.0) for cause in causes) / self.seconds

    def wait_per_arrival(self, *causes: str) -> float:
        """Return the mean seconds that an arrival waits for these causes (Little's law)."""
        came = self.traffic.came if self.traffic is not None else 0
        return _per_arrival(self.waits, causes, came)

    def lasting_wait_per_arrival(self, *causes: str) -> float:
        """Return the same over the minutes that end with the window.

        Time before the run began counts as if as many had come and none had waited: what has
        lasted for a minute has not lasted for ten.
        """
        lasting = self.lasting
        if lasting is None:
            return self.wait_per_arrival(*causes)
        arrived = lasting.arrived * lasting.seconds / lasting.known_seconds
        return _per_arrival(lasting.waits, causes, arrived)


def _per_arrival(waits: Mapping[str, float], causes: tuple[str, ...], arrived: float) -> float:
    return sum(waits.get(cause, 0.0) for cause in causes) / max(1, arrived)
