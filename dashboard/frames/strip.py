"""The strip: seven numbers that belong side by side, each with a note, or why it is missing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent.kv_groups import StatedGroups
from agent.reads.models import EngineRow, LatencySummary, RequestRow, Series
from dashboard.config import DashboardConfig
from dashboard.formats import count, money, num_bytes, ratio, seconds, words
from dashboard.frames.series import Window, peak_of, total_of

NANOSECONDS = 1_000_000_000
STRIP_METRICS = (
    "active_blocks_max", "live_sequences", "running", "arrived", "rejected", "finished",
    "active_block_ns",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tile:
    """One number with its unit; `value` None means not measured, and `note` says why."""

    name: str
    value: str | None
    note: str


@dataclass(frozen=True, slots=True)
class StripFacts:
    """What the strip is made of, all from one window of one run."""

    engine: EngineRow
    window: Window
    series: Series
    rejected_by_reason: dict[str, float]
    ttft: LatencySummary | None
    requests: Sequence[RequestRow]


def strip_of(facts: StripFacts, config: DashboardConfig) -> list[Tile]:
    """Return the seven tiles in their fixed order."""
    return [
        bytes_per_token(facts.engine),
        block_size(facts.engine),
        peak_active(facts),
        concurrency(facts),
        rejection_rate(facts),
        ttft(facts),
        cost_per_request(facts, config),
    ]


def bytes_per_token(engine: EngineRow) -> Tile:
    """Return how many bytes of KV one token takes."""
    value = engine.fingerprint.get("bytes_per_token")
    if not isinstance(value, int | float) or value <= 0:
        return Tile("Bytes per token", None, "the engine's config does not state it")
    kv_format = engine.fingerprint.get("kv_format")
    groups = StatedGroups.read(engine.fingerprint).total
    note = f"{num_bytes(value * engine.block_size / groups)} per block"
    return Tile("Bytes per token", num_bytes(value), f"{note} · {kv_format}" if kv_format else note)


def block_size(engine: EngineRow) -> Tile:
    """Return the block's token slots and the pool's size."""
    slots = engine.total_blocks * engine.block_size
    note = f"{count(engine.total_blocks)} blocks = {count(slots)} tokens"
    groups = StatedGroups.read(engine.fingerprint).total
    if groups > 1:
        note = f"{count(engine.total_blocks)} blocks; a token takes one in each of {groups} groups"
    return Tile("Block size", f"{engine.block_size} tokens", note)


def peak_active(facts: StripFacts) -> Tile:
    """Return the most blocks active at once."""
    peak = peak_of(facts.series, "active_blocks_max")
    if peak is None:
        return Tile("Peak active blocks", None, "no pool samples in this window")
    share = peak / facts.engine.total_blocks if facts.engine.total_blocks else None
    return Tile(
        "Peak active blocks", count(peak), f"{ratio(share)} of {count(facts.engine.total_blocks)}"
    )


def concurrency(facts: StripFacts) -> Tile:
    """Return the most sequences live at once, beside what fits at the 95th percentile of length."""
    peak = peak_of(facts.series, "live_sequences")
    fits = fitting_at_p95(facts)
    note = "no ended request to take a p95 length from" if fits is None else fits
    if peak is None:
        return Tile("Maximum concurrency", None, "no steps in this window")
    running = f"{count(peak_of(facts.series, 'running'))} running at most · "
    return Tile("Maximum concurrency", f"{count(peak)} live", running + note)


def fitting_at_p95(facts: StripFacts) -> str | None:
    """Return how many sequences of the window's p95 length the pool holds, sharing nothing."""
    lengths = sorted(
        (row.prompt_tokens or 0) + (row.output_tokens or 0)
        for row in facts.requests
        if row.ended_at_ns is not None and row.output_tokens
    )
    if not lengths:
        return None
    p95 = lengths[min(len(lengths) - 1, math.ceil(0.95 * len(lengths)) - 1)]
    blocks = math.ceil(p95 / facts.engine.block_size)
    fits = facts.engine.total_blocks // blocks if blocks else 0
    return f"{count(fits)} fit at p95 length, {count(p95)} tokens"


def rejection_rate(facts: StripFacts) -> Tile:
    """Return refused requests over arrived ones."""
    arrived = total_of(facts.series, "arrived")
    rejected = total_of(facts.series, "rejected") or 0
    if not arrived:
        return Tile("Rejection rate", None, "no request arrived in this window")
    reasons = facts.rejected_by_reason
    note = f"{count(rejected)} of {count(arrived)}"
    if reasons:
        note += f" · most: {words(max(reasons, key=lambda name: reasons[name]))}"
    return Tile("Rejection rate", ratio(rejected / arrived), note)


def ttft(facts: StripFacts) -> Tile:
    """Return the 95th percentile of the time to first token."""
    if facts.ttft is None or not facts.ttft.count:
        return Tile("TTFT p95", None, "no first token in this window")
    note = f"p50 {seconds(facts.ttft.p50)} · n = {count(facts.ttft.count)}"
    return Tile("TTFT p95", seconds(facts.ttft.p95), note)


def cost_per_request(facts: StripFacts, config: DashboardConfig) -> Tile:
    """Return the price of the block-seconds that the window's finished requests used, each."""
    name = "Cost per request"
    if config.price_per_hour is None:
        return Tile(name, None, "no price given: start with --price-per-hour")
    finished = total_of(facts.series, "finished")
    active_ns = total_of(facts.series, "active_block_ns")
    if not finished or active_ns is None:
        return Tile(name, None, "no request finished in this window")
    pool_ns = facts.engine.total_blocks * facts.window.seconds * NANOSECONDS
    used = min(active_ns / pool_ns, 1.0)
    spent = config.price_per_hour * facts.window.seconds / 3600
    note = f"idle blocks cost {money(spent * (1 - used), config.currency)} more ({ratio(1 - used)})"
    return Tile(name, money(spent * used / finished, config.currency), note)
