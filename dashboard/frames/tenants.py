"""Who uses the engine: one line for each tenant, and its ceilings where the engine states them."""

from collections.abc import Sequence

import numpy as np

from agent.reads.models import EngineRow, LabelledSeries, TenantRow
from dashboard.formats import NANOSECONDS, count, ratio, seconds
from dashboard.frames.series import Curves, amounts
from dashboard.frames.status import Status, Tone

MOST_DRAWN = 8
OTHERS = "others"
NO_TENANT = "no tenant"
Column = list[str | int | float | None]
RARE = frozenset({"Quota wait", "Transfer wait", "Re-wait", "At its quota", "Ceiling", "Preempted"})


def tenants_table(engine: EngineRow, rows: Sequence[TenantRow]) -> dict[str, Column]:
    """Return the table's columns by heading; those that say nothing of anybody are left out."""
    total = sum(row.block_seconds or 0 for row in rows)
    columns: dict[str, Column] = {
        "Tenant": [row.tenant or NO_TENANT for row in rows],
        "Blocks held": [row.held_blocks or 0 for row in rows],
        "Ceiling": [ceiling(engine, row.tenant) for row in rows],
        "Block-seconds": [row.block_seconds for row in rows],
        "Share": [(row.block_seconds or 0) / total if total else None for row in rows],
        "Requests": [row.num_requests for row in rows],
        "Rejected": [row.num_rejected for row in rows],
        "At its quota": [row.num_at_quota for row in rows],
        "Prompt": [row.prompt_tokens for row in rows],
        "Output": [row.output_tokens for row in rows],
        "Prefix hit": [row.prefix_hit_tokens for row in rows],
        "Pool wait": [in_seconds(row.wait_pool_ns) for row in rows],
        "Scheduler wait": [in_seconds(row.wait_scheduler_ns) for row in rows],
        "Quota wait": [in_seconds(row.wait_quota_ns) for row in rows],
        "Transfer wait": [in_seconds(row.wait_transfer_ns) for row in rows],
        "Re-wait": [in_seconds(row.wait_after_preempt_ns) for row in rows],
        "Preempted": [row.preemptions for row in rows],
    }
    return {name: cells for name, cells in columns.items() if name not in RARE or any(cells)}


def in_seconds(value_ns: int | None) -> float | None:
    """Turn nanoseconds into seconds; None stays None."""
    return None if value_ns is None else value_ns / NANOSECONDS


def ceiling(engine: EngineRow, tenant: str) -> int | None:
    """Return the most blocks a tenant may hold, where the engine's config states it.

    `tenant_ceilings` is a text such as `chat=40, *=100`; `*` stands for all that are not named.
    """
    stated: dict[str, int] = {}
    for part in str(engine.fingerprint.get("tenant_ceilings") or "").split(","):
        alias, _, blocks = part.strip().rpartition("=")
        if alias and blocks.isdecimal():
            stated[alias] = int(blocks)
    return stated.get(tenant, stated.get("*"))


def headline(rows: Sequence[TenantRow]) -> Status:
    """Say who uses most, and who stands at a limit of its own."""
    if not rows:
        hint = "choose a longer one, or send some"
        return Status("No request was alive in this window", (hint,), Tone.UNKNOWN)
    total = sum(row.block_seconds or 0 for row in rows)
    first = rows[0]
    details = [at_quota_words(row) for row in rows if row.num_at_quota]
    refused = sum(row.num_rejected for row in rows)
    if refused:
        details.append(f"{count(refused)} requests refused in all")
    tone = Tone.NOTICE if any(row.num_at_quota for row in rows) else Tone.GOOD
    if len(rows) == 1:
        name = first.tenant or NO_TENANT
        return Status(f"One tenant: {name}", tuple(details), tone)
    share = (first.block_seconds or 0) / total if total else None
    text = f"{first.tenant or NO_TENANT} used most: {ratio(share)} of the block-seconds"
    return Status(f"{count(len(rows))} tenants; {text}", tuple(details), tone)


def at_quota_words(row: TenantRow) -> str:
    """Say that a tenant's sequences wait for its own limit."""
    waited = seconds((row.wait_quota_ns or 0) / NANOSECONDS)
    return f"{row.tenant or NO_TENANT}: {count(row.num_at_quota)} wait for its quota ({waited})"


def largest(series: LabelledSeries, *, per_seconds: float = 1.0) -> Curves:
    """Return the largest tenants' curves, what is left as `others`; values are divided."""
    named = {name or NO_TENANT: curve / per_seconds for name, curve in series.values.items()}
    curves = amounts(LabelledSeries(series.t_ns, named, series.tier_seconds))
    names = list(curves.values)
    shown = {name: curves.values[name] for name in names[:MOST_DRAWN]}
    if len(names) > MOST_DRAWN:
        rest = np.sum([curves.values[name] for name in names[MOST_DRAWN:]], axis=0)
        shown[OTHERS] = rest
    return Curves(curves.times, shown, curves.tier_seconds)
