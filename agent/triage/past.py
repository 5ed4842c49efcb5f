"""The engine's own recent past: what it was able to do and who asked for what before the window.

Used where no saved baseline is given. Time that is named as no example of health (incidents) is
left out, so that a condition that lasts does not become the measure of itself.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from agent.reads.models import LabelledSeries, RunRow, Series
from agent.reads.reads import Reads
from agent.scraped.fingerprint import is_scraped
from agent.triage.facts import Past, TenantShare
from agent.triage.scraped_past import PastMinute, past_of, read_minutes
from agent.triage.step_cost import StepWork, step_work
from agent.triage.thresholds import Thresholds

NS: Final = 1_000_000_000
MOST_POINTS: Final = 300  # so that the tier of ten seconds is read
LEAST_SECONDS: Final = Thresholds().least_past_seconds
COLUMNS: Final = (
    *("steps", "prefill_tokens", "decode_tokens", "filled_slots", "logical_blocks"),
    *("compute_ns", "arrived"),
)
OF_A_MINUTE: Final = 6  # rows of ten seconds


class Stretch(NamedTuple):
    """Wall time `[start_ns, end_ns)`."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class GatheredPast:
    """The past, and what is only used to work something out.

    Attributes:
        work: Its steps, to learn from.
        shares: Each tenant's usual part of the active block-seconds: the median over minutes.
    """

    facts: Past | None
    work: StepWork
    shares: dict[str, float] = field(default_factory=dict)
    why_missing: str = ""
    minutes: tuple[PastMinute, ...] = ()  # of an engine that is known by its metrics page


def gather_past(
    reads: Reads, run: RunRow, *, before_ns: int, seconds: float, apart: tuple[Stretch, ...] = ()
) -> GatheredPast:
    """Return what is known of the time before the window."""
    if is_scraped(run.fingerprint):
        return _scraped_past(reads, run, before_ns, seconds, apart)
    # Whole rows only: the interval that holds the window's start belongs to the window.
    end_ns = before_ns // (10 * NS) * (10 * NS)
    start_ns = max(run.started_at_ns, end_ns - int(seconds * NS))
    series = reads.series(run.run_key, COLUMNS, start_ns, max(start_ns, end_ns), MOST_POINTS)
    kept = _outside(series, apart)
    work = step_work({name: column[kept] for name, column in series.values.items()}, run.block_size)
    known_seconds = float(kept.sum() * series.tier_seconds)
    if known_seconds < LEAST_SECONDS:
        why = f"{known_seconds:.0f} s of history, {LEAST_SECONDS:.0f} s are needed"
        return GatheredPast(None, work, why_missing=why)
    facts = Past(
        start_ns=start_ns,
        end_ns=end_ns,
        seconds=known_seconds,
        arrived_per_second=_by_minute(series.values["arrived"][kept], series.tier_seconds),
        mean_prompt_tokens=reads.mean_prompt_tokens(run.run_key, start_ns, end_ns),
    )
    blocks = reads.labelled(run.run_key, "tenant_block_ns", start_ns, end_ns, MOST_POINTS)
    return GatheredPast(facts, work, _usual_shares(blocks, apart))


def _scraped_past(
    reads: Reads, run: RunRow, before_ns: int, seconds: float, apart: tuple[Stretch, ...]
) -> GatheredPast:
    start_ns = max(run.started_at_ns, before_ns - int(seconds * NS))
    minutes = read_minutes(reads, run, start_ns, before_ns, apart)
    facts = past_of(minutes, start_ns, before_ns)
    nothing = StepWork(np.zeros(0), np.zeros((0, 4)))
    if facts is None:
        why = f"{60 * len(minutes)} s of history, {LEAST_SECONDS:.0f} s are needed"
        return GatheredPast(None, nothing, why_missing=why)
    return GatheredPast(facts, nothing, minutes=tuple(minutes))


def tenant_shares(
    reads: Reads, run: RunRow, window: Stretch, usual: dict[str, float]
) -> tuple[TenantShare, ...]:
    """Return each tenant's part of the window's block-seconds, the largest first."""
    step = 10 * NS
    first_ns = -(-window.start_ns // step) * step  # an interval that began before is not ours
    blocks = reads.labelled(run.run_key, "tenant_block_ns", first_ns, window.end_ns, MOST_POINTS)
    sums = {tenant: float(values.sum()) for tenant, values in blocks.values.items()}
    whole = sum(sums.values())
    seconds = (window.end_ns - first_ns) / NS
    if whole <= 0 or seconds <= 0:
        return ()
    shares = [
        TenantShare(
            tenant=tenant,
            share=block_ns / whole,
            active_blocks=block_ns / NS / seconds,
            past_share=usual.get(tenant, 0.0) if usual else None,
        )
        for tenant, block_ns in sums.items()
    ]
    return tuple(sorted(shares, key=lambda each: (-each.share, each.tenant)))


def _outside(series: Series | LabelledSeries, apart: tuple[Stretch, ...]) -> np.ndarray:
    kept = np.ones(len(series.t_ns), bool)
    for stretch in apart:
        ends = series.t_ns + series.tier_seconds * NS
        kept &= (ends <= stretch.start_ns) | (series.t_ns >= stretch.end_ns)
    return kept


def _by_minute(values: np.ndarray, tier_seconds: int) -> float:
    """Return the median over minutes of a counter, per second."""
    minutes = [
        np.nansum(values[at : at + OF_A_MINUTE]) for at in range(0, len(values), OF_A_MINUTE)
    ]
    return float(np.median(minutes)) / (OF_A_MINUTE * tier_seconds) if minutes else 0.0


def _usual_shares(blocks: LabelledSeries, apart: tuple[Stretch, ...]) -> dict[str, float]:
    kept = _outside(blocks, apart)
    columns = {tenant: values[kept] for tenant, values in blocks.values.items()}
    length = int(kept.sum())
    shares: dict[str, list[float]] = {tenant: [] for tenant in columns}
    for at in range(0, length, OF_A_MINUTE):
        sums = {tenant: v[at : at + OF_A_MINUTE].sum() for tenant, v in columns.items()}
        whole = sum(sums.values())
        if whole > 0:
            for tenant, part in sums.items():
                shares[tenant].append(float(part / whole))
    return {tenant: float(np.median(each)) for tenant, each in shares.items() if each}
