"""Turn a ledger's delta into rows, in the column order of `agent.store.schema`. Pure."""

import json
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, TypeAlias

from agent.ledger.delta import (
    BrokenLaw,
    Chunk,
    ClockStep,
    GapRow,
    LabelledRow,
    LatencyRow,
    Leak,
    LedgerDelta,
    RequestRow,
)
from agent.rollups.repeats import Repeating
from kvpulse.events import MAX_KINDS, Kind

Row: TypeAlias = tuple[object, ...]

COUNTS: Final = Struct(f"<{MAX_KINDS}Q")
COMPACT: Final = json.JSONEncoder(separators=(",", ":"))
KIND_NAMES: Final = {kind.value: kind.name.lower() for kind in Kind}


def chunk_rows(run_key: int, offset: int, chunks: Iterable[Chunk]) -> list[Row]:
    """Return rows of `chunks`."""
    return [
        (
            *(run_key, chunk.seq0, chunk.num_records, chunk.num_events, chunk.hash_bytes),
            *(chunk.t0_ns + offset, chunk.t1_ns + offset, chunk.crc, chunk.blob),
        )
        for chunk in chunks
    ]


def rollup_rows(run_key: int, offset: int, rollups: Iterable[Repeating]) -> list[Row]:
    """Return rows of `rollups`."""
    return [
        (run_key, tier, t_ns + offset, *values, repeats)
        for (tier, t_ns, values), repeats in rollups
    ]


def latency_rows(run_key: int, offset: int, latencies: Iterable[LatencyRow]) -> list[Row]:
    """Return rows of `latencies`."""
    return [(run_key, row[2], row[0], row[1] + offset, *row[3:]) for row in latencies]


def labelled_rows(run_key: int, offset: int, rows: Iterable[LabelledRow]) -> list[Row]:
    """Return rows of `labelled`."""
    return [
        (run_key, family, tier, t_ns + offset, label, value)
        for tier, t_ns, family, label, value in rows
    ]


def request_rows(run_key: int, offset: int, requests: Iterable[RequestRow]) -> list[Row]:
    """Return rows of `requests`."""
    return [_request_row(run_key, offset, request) for request in requests]


def _request_row(run_key: int, offset: int, row: RequestRow) -> Row:
    times = (row.arrived_ns, row.admitted_ns, row.first_token_ns, row.ended_ns, row.deadline_ns)
    return (
        *(run_key, row.owner, row.parent, row.tenant, row.state),
        *(None if t is None else _wall_ns(t, offset) for t in times),
        *(row.end_reason, row.reject_reason),
        *(row.prompt_tokens, row.max_tokens, row.asked_max_tokens, row.output_tokens),
        *(row.priority, row.tier, row.retry, _signed(row.request_hash) or None),
        *(row.logical_blocks, row.physical_blocks, row.shared_within, row.shared_across),
        *(row.peak_blocks, row.filled_slots),
        *(row.wait_pool_ns, row.wait_scheduler_ns, row.wait_quota_ns, row.wait_transfer_ns),
        *(row.wait_after_preempt_ns, row.preemptions, row.recomputed_tokens),
        *(row.prefix_hit_tokens, row.time_to_first_block_ns, row.frontend_ns, row.blocker),
        *(row.blocked_others_ns, row.needed_blocks, row.tokens_lost, row.tokens_found),
        *(row.blocks_kept, row.swaps, row.host_blocks, row.block_seconds),
        None if row.wait_ns is None else _json(row.wait_ns),
        json.dumps(row.preempted_by) if row.preempted_by else "[]",
        _json(row.alloc_failures) if row.alloc_failures else "{}",
        int(row.spans_gap),
        row.wait_cause,
    )


def gap_rows(run_key: int, offset: int, gaps: Iterable[GapRow]) -> list[Row]:
    """Return rows of `gaps`."""
    return [
        (
            *(run_key, gap.seq0, gap.seq1, gap.t0_ns + offset, gap.t1_ns + offset, gap.why),
            _json({kind_name(kind): n for kind, n in enumerate(gap.lost) if n}),
        )
        for gap in gaps
    ]


def leak_rows(run_key: int, offset: int, leaks: Iterable[Leak]) -> list[Row]:
    """Return rows of `leaks`."""
    return [
        (
            *(run_key, leak.block, leak.owner, leak.since_ns + offset),
            None if leak.ended_ns is None else leak.ended_ns + offset,
        )
        for leak in leaks
    ]


def broken_law_rows(run_key: int, offset: int, laws: Iterable[BrokenLaw]) -> list[Row]:
    """Return rows of `broken_laws`."""
    return [
        (
            *(run_key, broken.law, broken.opened_ns + offset),
            None if broken.closed_ns is None else broken.closed_ns + offset,
            *(broken.evidence.expected, broken.evidence.found),
            *(json.dumps(broken.evidence.named.blocks), broken.evidence.named.num_blocks),
            *(json.dumps(broken.evidence.named.owners), broken.evidence.named.num_owners),
        )
        for broken in laws
    ]


def clock_step_rows(run_key: int, offset: int, steps: Iterable[ClockStep]) -> list[Row]:
    """Return rows of `clock_steps`."""
    return [(run_key, step.t_ns + offset, step.step_ns) for step in steps]


def kind_rows(run_key: int, delta: LedgerDelta) -> list[Row]:
    """Return what to add to `kind_totals`."""
    pairs = zip(delta.stored, delta.lost, strict=True)
    return [(run_key, kind, got, lost) for kind, (got, lost) in enumerate(pairs) if got or lost]


def kind_name(kind: int) -> str:
    """Return a kind's name; one that this version does not know keeps its number."""
    return KIND_NAMES.get(kind, f"kind_{kind}")


def fingerprint_text(config: Mapping[str, object]) -> str:
    """Return a configuration as JSON with sorted keys, so that equal ones are equal texts."""
    return json.dumps(config, sort_keys=True, default=str)


def _wall_ns(t_ns: int, offset: int) -> int | None:
    """Return a time as the store holds it; None beyond the year 2262: a deadline of "never"."""
    at_ns = t_ns + offset
    return at_ns if at_ns < 1 << 63 else None


def _json(value: Mapping[str, int]) -> str:
    return COMPACT.encode(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
