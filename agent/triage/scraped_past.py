"""A scraped engine's own past, minute by minute; what its steps took at which batch and context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.reads.models import RunRow
from agent.reads.reads import Reads
from agent.triage.facts import Past

NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * NS
COLUMNS: Final = ("running", "active_blocks", "admitted", "prefill_tokens", "prefix_hit_tokens")
ALIKE: Final = 0.25  # batch and context may differ by so much and still be the same
LEAST_MINUTES: Final = 2


@dataclass(frozen=True, slots=True)
class PastMinute:
    """One minute; NaN is what was not told."""

    running: float
    active_blocks: float
    inter_token_seconds: float  # mean
    admitted: float
    prompt_tokens: float  # of those admitted, together


def read_minutes(
    reads: Reads, run: RunRow, start_ns: int, end_ns: int, apart: Sequence[tuple[int, int]]
) -> list[PastMinute]:
    """Return the whole minutes of `[start_ns, end_ns)` that touch no stretch apart."""
    first, last = -(-start_ns // MINUTE_NS) * MINUTE_NS, end_ns // MINUTE_NS * MINUTE_NS
    if first >= last:
        return []
    most = (last - first) // MINUTE_NS + 1
    rows = reads.series(run.run_key, COLUMNS, first, last, most)
    means = _inter_token(reads, run, first, last)
    v = rows.values
    prompts = v["prefill_tokens"] + np.nan_to_num(v["prefix_hit_tokens"])
    found = []
    for at, t_ns in enumerate(rows.t_ns.tolist()):
        if any(t_ns < high and t_ns + MINUTE_NS > low for low, high in apart):
            continue
        found.append(
            PastMinute(
                running=float(v["running"][at]),
                active_blocks=float(v["active_blocks"][at]),
                inter_token_seconds=means.get(t_ns, np.nan),
                admitted=float(v["admitted"][at]),
                prompt_tokens=float(prompts[at]),
            )
        )
    return found


def _inter_token(reads: Reads, run: RunRow, start_ns: int, end_ns: int) -> dict[int, float]:
    """Return the mean time between tokens, by start of the minute."""
    means = {}
    for page in reads.pages("latencies", run.run_key, start_ns, end_ns):
        columns = (page[name] for name in ("metric", "tier_seconds", "at_ns", "sum_ns", "count"))
        for metric, tier, at_ns, sum_ns, count in zip(*columns, strict=True):
            if metric == "inter_token" and tier == 60 and count:
                means[at_ns] = sum_ns / count / NS
    return means


def past_of(minutes: Sequence[PastMinute], start_ns: int, end_ns: int) -> Past | None:
    """Return the past as the rules know it; None where too little is known."""
    told = [each for each in minutes if not np.isnan(each.admitted)]
    if len(told) < LEAST_MINUTES:
        return None
    admitted = sum(each.admitted for each in told)
    prompts = sum(each.prompt_tokens for each in told if not np.isnan(each.prompt_tokens))
    return Past(
        start_ns=start_ns,
        end_ns=end_ns,
        seconds=60.0 * len(told),
        arrived_per_second=float(np.median([each.admitted for each in told])) / 60,
        mean_prompt_tokens=prompts / admitted if admitted else None,
    )


def slow_ratio(
    minutes: Sequence[PastMinute], *, running: float, active_blocks: float, seconds: float
) -> float | None:
    """Return a mean time between tokens over the past's at the same batch and context.

    None where the past has too few minutes like it.
    """
    alike = [
        each.inter_token_seconds
        for each in minutes
        if _is_alike(each.running, running)
        and _is_alike(each.active_blocks, active_blocks)
        and each.inter_token_seconds > 0
    ]
    return seconds / float(np.median(alike)) if len(alike) >= LEAST_MINUTES else None


def _is_alike(then: float, now: float) -> bool:
    return bool(abs(then - now) <= ALIKE * max(now, 1.0))  # NaN is like nothing
