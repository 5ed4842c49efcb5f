"""The words of triage: verdicts, actions, and the values that carry them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """Triage's answer for a window: one cause. The values are API."""

    HEALTHY = "healthy"
    ENGINE_DOWN = "engine_down"
    STALLED = "stalled"
    LIVELOCK = "livelock"
    LEDGER_BROKEN = "ledger_broken"
    POOL_LEAK = "pool_leak"
    POOL_EXHAUSTED = "pool_exhausted"
    NEVER_FITS = "never_fits"
    HEAD_OF_LINE = "head_of_line"
    BATCH_SLOTS = "batch_slots"
    TOKEN_BUDGET = "token_budget"
    TENANT_QUOTA = "tenant_quota"
    TENANT_HOG = "tenant_hog"
    PREEMPTION_THRASH = "preemption_thrash"
    COMPUTE_SLOW = "compute_slow"
    FRONTEND_SLOW = "frontend_slow"
    TRAFFIC_SHIFT = "traffic_shift"
    TELEMETRY_INCOMPLETE = "telemetry_incomplete"
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What to do first. The values are API."""

    SCALE = "scale"
    THROTTLE = "throttle"
    CHANGE_BLOCK_POLICY = "change_block_policy"
    FIX_CODE = "fix_code"
    RESTART = "restart"
    CHECK_HARDWARE = "check_hardware"
    CHECK_TRAFFIC = "check_traffic"
    NONE = "none"


class Confidence(StrEnum):
    """How sure a finding is."""

    HIGH = "high"  # counted, or proved by a law
    MEDIUM = "medium"  # measured, and compared with something that may not be the same
    LOW = "low"  # the best explanation of what little is known


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that decided a verdict, with its unit and the time that it is about.

    Attributes:
        name: What it is, as a word of the product (`wait_pool_seconds`, `leaked_blocks`).
        value: A number, a name, or a list of either.
        unit: `blocks`, `seconds`, `sequences`, `ratio`, …
        text: The same as a sentence, with the number in it.
        start_ns: Wall ns from where on it was counted; None: at one moment.
        end_ns: Wall ns up to where it was counted, or the moment.
    """

    name: str
    value: object
    unit: str
    text: str
    start_ns: int | None
    end_ns: int


AT_ONCE: Final = 0.0
SOON: Final = 10.0
AT_LAST: Final = 30.0  # its rule has looked back over minutes already
# A latency of one window alone: it may come from a burst, which is no incident.
AFTER_A_BURST: Final = 300.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that holds.

    Attributes:
        impact: How much of the users' time it takes now: sequences held up on average (sequence-
            seconds a second), from 0 up. It ranks causes by what they cost, not by how often
            they occur.
        opens_after_seconds: So long it has to hold before it is an incident. What is counted is
            so at once; what is measured over a minute has to outlast a burst.
        casts_doubt: Whatever was measured over the window is doubtful, so it leads what costs.
        explains: Verdicts that are this one's consequences where both hold.
    """

    verdict: Verdict
    action: Action
    confidence: Confidence
    impact: float
    summary: str
    advice: str
    evidence: tuple[Evidence, ...]
    opens_after_seconds: float = 30.0
    casts_doubt: bool = False
    explains: frozenset[Verdict] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Triage's whole answer for one engine and one window.

    Attributes:
        contributing: Other findings that hold, the worst first.
        causes: Of all findings, those that no other one explains; the headline is one of them.
        missing: What could not be measured, and why.
    """

    engine: str
    run_id: str
    start_ns: int
    end_ns: int
    headline: Finding
    contributing: tuple[Finding, ...]
    missing: Mapping[str, str]
    causes: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Return the one cause."""
        return self.headline.verdict
