"""Facts of a well engine, of which a test changes what it is about."""

from dataclasses import replace
from typing import Any

from agent.reads.models import LatencySummary, RunState
from agent.triage.facts import (
    BookFacts,
    Facts,
    LastingFacts,
    Past,
    PoolFacts,
    QueueFacts,
    RunFacts,
    StepFacts,
    TelemetryFacts,
    TrafficFacts,
)

NS = 1_000_000_000
END = 1_790_000_000 * NS


def facts(**changes: Any) -> Facts:
    """Return a minute of an engine with 10 sequences, half of its 1,000 blocks active."""
    well = Facts(
        start_ns=END - 60 * NS,
        end_ns=END,
        run=RunFacts("engine-a", "run-1", 1, RunState.LIVE, END - 3_600 * NS, END),
        pool=PoolFacts(1_000, 1_000, active=500, cached=300, free=200, available_ratio=0.5),
        queue=QueueFacts(waiting=0, running=10, live=10, max_batch=48),
        steps=StepFacts(700, 50.0, 20_000, 6_000, 0, 0, slow_ratio=1.0, expected_seconds=50.0),
        traffic=TrafficFacts(60, 60, 60, 0, mean_prompt_tokens=500.0),
        books=BookFacts(300.0),
        telemetry=TelemetryFacts(10_000, 0, commit_age_seconds=0.3),
        past=Past(END - 1_860 * NS, END - 60 * NS, 1_800.0, 1.0, 500.0),
    )
    return replace(well, **changes)


def lasting(
    waits: dict[str, float], *, known_seconds: float = 600.0, arrived: int = 600
) -> LastingFacts:
    """Return ten minutes of one request a second, of which a run has been there for a part."""
    return LastingFacts(600.0, known_seconds, arrived, waits, 200_000, 0)


def latency(seconds: float, count: int = 60) -> LatencySummary:
    """Return a latency that was the same each time."""
    return LatencySummary(count, seconds * count, *[seconds] * 5)
