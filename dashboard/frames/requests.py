"""The request table: columns of one kind each, None where nobody measured."""

from collections.abc import Callable, Sequence
from datetime import datetime

from agent.reads.models import RequestRow, RequestState
from dashboard.formats import NANOSECONDS, moment, nanoseconds, seconds, words

Column = list[str | int | float | datetime | None]
OPEN_STATES = (
    RequestState.WAITING, RequestState.RUNNING, RequestState.PREEMPTED, RequestState.SWAPPED
)  # fmt: skip


RARE = frozenset(  # left out where no row has it
    {
        *("Quota wait", "Transfer wait", "Re-wait", "Sample of", "Waits behind", "Held up others"),
        *("Tokens lost", "Found again", "Host blocks", "Priority", "Tier", "In server", "Retry"),
    }
)


def table_of(rows: Sequence[RequestRow]) -> dict[str, Column]:
    """Return the table's columns by heading, one entry per sequence."""
    columns: dict[str, Column] = {
        "Sequence": [row.owner for row in rows],
        "Sample of": [row.parent or None for row in rows],
        "State": [words(row.state) for row in rows],
        "Tenant": [row.tenant or None for row in rows],
        "Arrived": [time_or_none(row.arrived_at_ns) for row in rows],
        "TTFT": [first_token(row) for row in rows],
        "Pool wait": [in_seconds(row.wait_pool_ns) for row in rows],
        "Scheduler wait": [in_seconds(row.wait_scheduler_ns) for row in rows],
        "Re-wait": [in_seconds(row.wait_after_preempt_ns) for row in rows],
        "Quota wait": [in_seconds(row.wait_quota_ns) for row in rows],
        "Transfer wait": [in_seconds(row.wait_transfer_ns) for row in rows],
        "Waits behind": [row.blocker for row in rows],
        "Held up others": [in_seconds(row.blocked_others_ns) for row in rows],
        "Logical": [row.logical_blocks for row in rows],
        "Physical": [row.physical_blocks for row in rows],
        "Shared": [shared_blocks(row) for row in rows],
        "Peak": [row.peak_blocks for row in rows],
        "Block-seconds": [row.block_seconds for row in rows],
        "Prompt": [row.prompt_tokens for row in rows],
        "Output": [row.output_tokens for row in rows],
        "Prefix hit": [row.prefix_hit_tokens for row in rows],
        "Recomputed": [row.recomputed_tokens for row in rows],
        "Preempted": [row.preemptions for row in rows],
        "Preempted for": [beneficiaries(row) for row in rows],
        "Tokens lost": [row.tokens_lost for row in rows],
        "Found again": [row.tokens_found for row in rows],
        "Host blocks": [row.host_blocks for row in rows],
        "Priority": [row.priority for row in rows],
        "Tier": [row.tier for row in rows],
        "Retry": [row.retry for row in rows],
        "In server": [in_seconds(row.frontend_ns) for row in rows],
        "End": [end_words(row) for row in rows],
    }
    return {name: cells for name, cells in columns.items() if name not in RARE or any(cells)}


def grouped(rows: Sequence[RequestRow]) -> list[RequestRow]:
    """Return the rows with the samples and beams of a request right below its first sequence.

    The order is otherwise kept: a request stands where the first of its sequences stood.
    """
    groups: dict[int, list[RequestRow]] = {}
    for row in rows:
        groups.setdefault(row.parent or row.owner, []).append(row)
    return [row for group in groups.values() for row in sorted(group, key=lambda row: row.owner)]


def shared_blocks(row: RequestRow) -> int | None:
    """Return how many table entries name a block that another entry or sequence also holds."""
    if row.shared_across is None:
        return row.shared_within
    return row.shared_across + (row.shared_within or 0)


def beneficiaries(row: RequestRow) -> str | None:
    """Name the sequences that this one was preempted for."""
    if not row.preempted_by:
        return None
    return ", ".join("nobody named" if owner == 0 else str(owner) for owner in row.preempted_by)


def preemption_words(row: RequestRow) -> str:
    """Say for whom it was preempted, how, and what that cost."""
    names = beneficiaries(row)
    if names is None:
        return "never preempted"
    text = names
    if row.swaps:
        text += f"; {row.swaps} of {row.preemptions} by swap"
    if row.tokens_lost:
        text += f"; {row.tokens_lost} tokens lost, {show(row.tokens_found)} found again"
    if row.host_blocks:
        text += f"; {row.host_blocks} blocks in host memory now"
    return text


def end_words(row: RequestRow) -> str | None:
    """Say how it ended, and why if it was refused."""
    if row.reject_reason:
        return f"rejected: {words(row.reject_reason)}"
    return words(row.end_reason) if row.end_reason else None


def in_seconds(value_ns: int | None) -> float | None:
    """Turn nanoseconds into seconds; None stays None."""
    return None if value_ns is None else value_ns / NANOSECONDS


def between(start_ns: int | None, end_ns: int | None) -> float | None:
    """Return the seconds between two moments; None if either is not known."""
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / NANOSECONDS


def first_token(row: RequestRow) -> float | None:
    """Return the seconds to the first token; a sample that forked after it has none of its own."""
    wait = between(row.arrived_at_ns, row.first_token_at_ns)
    return None if row.parent and wait is not None and wait <= 0 else wait


def time_or_none(t_ns: int | None) -> datetime | None:
    """Return a moment as UTC; None stays None."""
    return None if t_ns is None else moment(t_ns)


def chosen(
    rows: Sequence[RequestRow], *, states: Sequence[str], tenants: Sequence[str], only: str
) -> list[RequestRow]:
    """Return the rows that pass the page's filters; an empty choice filters nothing."""
    return [
        row
        for row in rows
        if (not states or row.state in states)
        and (not tenants or row.tenant in tenants)
        and ONLY[only](row)
    ]


ONLY: dict[str, Callable[[RequestRow], bool]] = {
    "all": lambda row: True,
    "waited for blocks": lambda row: bool(row.wait_pool_ns),
    "preempted": lambda row: bool(row.preemptions),
    "shares blocks": lambda row: bool(shared_blocks(row)),
    "failed an allocation": lambda row: bool(row.alloc_failures),
}


def oldest_wait_seconds(rows: Sequence[RequestRow], now_ns: int) -> float | None:
    """Return how long the sequence that has waited longest has been in the system."""
    since = [row.arrived_at_ns for row in rows if row.arrived_at_ns is not None]
    return max(now_ns - min(since), 0) / NANOSECONDS if since else None


def fact_lines(row: RequestRow) -> list[tuple[str, str | None]]:
    """Return the facts that stand beside a request's timeline: a name, and None if not known."""
    return [
        ("Tenant", row.tenant or "none"),
        ("Time to first token", seconds_or_none(row.arrived_at_ns, row.first_token_at_ns)),
        ("Waited for", waits_words(row)),
        ("Waited again after preemption", rewait_words(row)),
        ("Prompt / output / limit", tokens_words(row)),
        ("Blocks logical / physical / peak", blocks_words(row)),
        ("Shared within / across", pair(row.shared_within, row.shared_across)),
        ("Prefix hit", number(row.prefix_hit_tokens, "tokens")),
        ("Recomputed", number(row.recomputed_tokens, "tokens")),
        ("Failed allocations", str(row.alloc_failures)),
        ("Preempted for", preemption_words(row)),
        ("In the server before", None if row.frontend_ns is None else nanoseconds(row.frontend_ns)),
        ("Held up others", nanoseconds(row.blocked_others_ns)),
        ("Priority / tier / retry", f"{row.priority} / {row.tier} / {row.retry}"),
        ("End", end_words(row) or words(row.state)),
    ]


def seconds_or_none(start_ns: int | None, end_ns: int | None) -> str | None:
    """Write the time between two moments; None if either is not known."""
    length = between(start_ns, end_ns)
    return None if length is None else seconds(length)


def waits_words(row: RequestRow) -> str | None:
    """Write what was waited for and how long, the longest first; None if not measured."""
    if row.wait_pool_ns is None and not row.wait_ns:
        return None
    waits = sorted(row.wait_ns.items(), key=lambda item: -item[1])
    parts = [f"{words(cause)} {nanoseconds(length)}" for cause, length in waits if length]
    return ", ".join(parts) or "nothing"


def rewait_words(row: RequestRow) -> str | None:
    """Write how long it waited after it had lost its blocks; None if not measured."""
    return None if row.wait_after_preempt_ns is None else nanoseconds(row.wait_after_preempt_ns)


def tokens_words(row: RequestRow) -> str:
    """Return prompt, output and limit, with what was asked for where it was clamped."""
    limit = show(row.max_tokens)
    if row.asked_max_tokens is not None and row.asked_max_tokens != row.max_tokens:
        limit += f" (asked for {row.asked_max_tokens})"
    return f"{show(row.prompt_tokens)} / {show(row.output_tokens)} / {limit} tokens"


def blocks_words(row: RequestRow) -> str | None:
    """Return the three block counts; None if none was measured."""
    parts = (row.logical_blocks, row.physical_blocks, row.peak_blocks)
    return None if parts == (None, None, None) else " / ".join(show(part) for part in parts)


def pair(first: int | None, second: int | None) -> str | None:
    """Return two counts; None if neither was measured."""
    return None if first is None and second is None else f"{show(first)} / {show(second)}"


def number(value: int | None, unit: str) -> str | None:
    """Return a count with its unit; None stays None."""
    return None if value is None else f"{value} {unit}"


def show(value: int | None) -> str:
    """Return a count, or a dash where nobody measured."""
    return "—" if value is None else str(value)
