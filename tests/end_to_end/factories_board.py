"""What the board "pool and waits" must show, worked out from the store and from nothing else."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from agent.reads.reads import Reads
from agent.rollups.scalars import COUNTERS, GAUGES
from grafana.generate import BOARDS, encode

ALL_TIME = (0, 2**62)
# What the store of one simulated run cannot say: of the watches, which look when they look, the
# machine, a trend, a real clock.
NOT_OF_THE_STORE = {
    *("Verdict", "Open incidents", "Leading verdict", "Incidents"),
    *("GPU memory in use", "GPU utilisation", "GPU power"),
    *("Time until the pool is used up", "Time of an allocation"),
    *("Error budget, last hour", "Share within target, last 5 minutes", "Error budget, burn rate"),
}


@dataclass(frozen=True)
class Drawn:
    """One query of one panel."""

    panel: str
    legend: str
    expr: str

    @property
    def name(self) -> str:
        """Panel and legend."""
        return f"{self.panel} / {self.legend}"


def drawn_queries(window: str) -> list[Drawn]:
    """Every query of the board, with Grafana's variables filled in."""
    [build] = BOARDS.values()
    board = json.loads(encode(build()))
    filled = {"$engine": ".+", "$__rate_interval": window, "$__range": window}
    queries = []
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"]
            for variable, value in filled.items():
                expr = expr.replace(variable, value)
            queries.append(Drawn(panel["title"], target["legendFormat"], expr))
    return queries


@dataclass(frozen=True)
class Facts:
    """What the store and the agent's live state say at one moment."""

    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    labelled: Mapping[str, Mapping[str, float]]
    waits: Mapping[str, Mapping[str, float | None]]
    num_leaked: int
    stored: int
    lost: int
    lag_seconds: float
    oldest_wait_seconds: float | None
    runnable_blocks: float

    def since(self, before: "Facts", counter: str) -> float:
        """How much a counter gained."""
        return self.counters[counter] - before.counters[counter]


def facts_of(reads: Reads, run_key: int, live: Mapping) -> Facts:
    """Ask the store; `live` is the engine's part of the agent's /api/status."""
    series = reads.series(run_key, [*GAUGES, *COUNTERS], *ALL_TIME)
    families = ("rejected", "allocate_failed", "wait_ns")
    return Facts(
        gauges={name: _last(series.values[name]) for name in GAUGES},
        counters={name: float(np.nansum(series.values[name])) for name in COUNTERS},
        labelled={
            family: {
                label: float(np.nansum(values))
                for label, values in reads.labelled(run_key, family, *ALL_TIME).values.items()
            }
            for family in families
        },
        waits=live["waits"],
        num_leaked=len(reads.leaks(run_key)),
        stored=sum(total.stored for total in reads.totals(run_key).values()),
        lost=sum(total.lost for total in reads.totals(run_key).values()),
        lag_seconds=live["lag_seconds"],
        oldest_wait_seconds=live["oldest_wait_seconds"],
        runnable_blocks=(live["head_of_line"] or {"runnable_blocks": 0})["runnable_blocks"],
    )


def _last(values: np.ndarray) -> float:
    measured = values[~np.isnan(values)]
    return float(measured[-1]) if len(measured) else float("nan")


def expected_values(before: Facts, after: Facts, seconds: float) -> dict[str, Mapping[str, float]]:
    """Panel and legend to what each series must show; `{{label}}` legends have one per label."""

    def rate(counter: str, scale: float = 1.0) -> float:
        return after.since(before, counter) / scale / seconds

    def rates(family: str, scale: float = 1.0) -> dict[str, float]:
        return {label: value / scale / seconds for label, value in after.labelled[family].items()}

    gauges = after.gauges
    hits = after.since(before, "prefix_hit_tokens")
    queried = after.since(before, "prefix_queried_tokens")
    one: Callable[[float], Mapping[str, float]] = lambda value: {"": value}  # noqa: E731
    blocks = {state: one(gauges[f"{state}_blocks"]) for state in ("active", "cached", "free")}
    classes = ("pool", "scheduler", "quota", "transfer")
    return {
        "Engine journal / Engine journal": one(1),
        "Active blocks / Active blocks": blocks["active"],
        "Cached blocks / Cached blocks": blocks["cached"],
        "Free blocks / Free blocks": blocks["free"],
        "Pool in use / Pool in use": one(gauges["active_blocks"] / gauges["total_blocks"]),
        "Oldest wait / Oldest wait": one(after.oldest_wait_seconds or 0),
        "Rejected / Rejected": one(
            after.since(before, "rejected") / after.since(before, "arrived")
        ),
        "Leaked blocks / Leaked blocks": one(after.num_leaked),
        "Blocks by state / active": blocks["active"],
        "Blocks by state / cached": blocks["cached"],
        "Blocks by state / free": blocks["free"],
        "What sharing saves / references": one(gauges["logical_blocks"]),
        "What sharing saves / active blocks": blocks["active"],
        "Seconds waited per second, by class / {{class}}": {
            name: rate(f"wait_{name}_ns", 1e9) for name in classes
        },
        "Seconds waited per second, by cause / {{cause}}": rates("wait_ns", 1e9),
        "Longest wait now, by cause / {{cause}}": {
            cause: float(wait["oldest_of_cause_seconds"] or 0)
            for cause, wait in after.waits.items()
        },
        "Sequences waiting, by cause / {{cause}}": {
            cause: float(wait["waiting"] or 0) for cause, wait in after.waits.items()
        },
        "Rejections, by reason / {{reason}}": rates("rejected"),
        "Failed allocations / {{cause}}": rates("allocate_failed"),
        "Preemptions / preemptions": one(rate("preempted")),
        "Copies and swaps / copied on write": one(rate("copied")),
        "Copies and swaps / swapped out": one(rate("swapped_out")),
        "Copies and swaps / swapped in": one(rate("swapped_in")),
        "Tokens lost and found again / lost": one(rate("tokens_lost")),
        "Tokens lost and found again / found again": one(rate("resume_hit_tokens")),
        "Runnable blocks behind the head of the line / runnable": one(after.runnable_blocks),
        "Tokens through the model / prefill": one(rate("prefill_tokens")),
        "Tokens through the model / decode": one(rate("decode_tokens")),
        "Tokens through the model / recomputed": one(rate("recomputed_tokens")),
        "Prefix hit ratio / hit ratio": one(hits / queried),
        "Events lost / lost": one(after.lost - before.lost),
        "Events lost / stored per second": one((after.stored - before.stored) / seconds),
        "Ledger audits failed / failed": one(after.since(before, "audits_failed")),
        "Ledger audits failed / passed per second": one(rate("audits_passed")),
        "Journal lag / {{engine}}": {"engine-0": after.lag_seconds},
    }


# Panel and legend of quantiles: the latency in the store, and which of its quantiles.
QUANTILES = {
    f"{panel} / {name}": (metric, name)
    for panel, metric in (("Time to first token", "ttft"), ("Time between tokens", "inter_token"))
    for name in ("p50", "p95", "p99")
} | {
    "Queue time, p95 / queue": ("queue", "p95"),
    "Queue time, p95 / pool": ("pool_wait", "p95"),
    "Queue time, p95 / scheduler": ("scheduler_wait", "p95"),
}


def bucket_around(value: float, edges: tuple[float, ...]) -> Iterator[float]:
    """The two edges between which a quantile estimate lies."""
    above = [edge for edge in edges if edge >= value * (1 - 1e-9)]
    below = [edge for edge in edges if edge < value * (1 - 1e-9)]
    return iter((max(below, default=0.0), min(above, default=float("inf"))))
