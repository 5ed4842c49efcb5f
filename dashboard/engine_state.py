"""What the head of each page says of an engine: how it is, and what its figures come from."""

from dataclasses import dataclass

from agent.reads.models import EngineRow
from dashboard.frames.status import Status


@dataclass(frozen=True, slots=True)
class EngineState:
    """One engine, its status in words, and how old what we know of it is."""

    engine: EngineRow
    status: Status
    age_seconds: float | None
    stale: bool
    rejected_ratio: float | None
    ttft_p95_seconds: float | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """What share of the stated events a view was drawn from."""

    stored: int
    lost: int
    share_ratio: float | None
    window_share_ratio: float | None
    num_gaps: int
    last_event_at_ns: int | None
    age_seconds: float | None
    page: str = ""  # of an engine that is known by its metrics page alone
