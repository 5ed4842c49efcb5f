"""Rows and maps for the dashboard's tests: state only what matters, the rest is ordinary."""

import numpy as np

from agent.block_map import BlockMap
from agent.reads.models import EngineRow, RequestRow, RequestState, RunState

SECOND = 1_000_000_000
FINGERPRINT = {
    "engine": "kvpulse",
    "model": "SmolLM2-135M",
    "kv_format": "fp32",
    "block_size": 16,
    "bytes_per_token": 46_080,
    "runner": "torch",
    "version": "0.1.0",
}


def engine_row(
    now_ns: int,
    *,
    engine: str = "llm-0",
    run_key: int = 1,
    total_blocks: int = 512,
    waiting: int = 0,
    measured: bool = True,
) -> EngineRow:
    active = total_blocks * 98 // 100
    return EngineRow(
        engine=engine,
        run_id="20261130T160000-4711",
        run_key=run_key,
        started_at_ns=now_ns - 7200 * SECOND,
        ended_at_ns=None,
        last_event_at_ns=now_ns if measured else None,
        state=RunState.LIVE,
        fingerprint=FINGERPRINT if measured else {},
        total_blocks=total_blocks,
        host_blocks=0,
        block_size=16,
        num_gaps=0,
        events_stored=1_178_174,
        events_lost=0,
        audits_passed=1802,
        audits_failed=0,
        active_blocks=active if measured else None,
        cached_blocks=(total_blocks - active) // 2 if measured else None,
        free_blocks=(total_blocks - active) - (total_blocks - active) // 2 if measured else None,
        waiting=waiting if measured else None,
        running=16 if measured else None,
    )


def request_row(
    owner: int,
    now_ns: int,
    states: tuple[RequestState, ...] = tuple(RequestState),
    *,
    tenant: str = "search",
) -> RequestRow:
    state = states[owner % len(states)]
    ended = state not in {
        RequestState.WAITING,
        RequestState.RUNNING,
        RequestState.PREEMPTED,
        RequestState.SWAPPED,
    }
    ran = state not in {RequestState.WAITING, RequestState.REJECTED}
    arrived = now_ns - (170 - owner) * SECOND
    return RequestRow(
        owner=owner,
        parent=0,
        tenant=(tenant, "batch", "chat")[owner % 3],
        state=state,
        arrived_at_ns=arrived,
        admitted_at_ns=arrived + SECOND // 2 if ran else None,
        first_token_at_ns=arrived + SECOND if ran else None,
        ended_at_ns=arrived + 9 * SECOND if ended else None,
        end_reason=state.value if ended else None,
        reject_reason="queue_full" if state is RequestState.REJECTED else None,
        prompt_tokens=300 + owner * 3,
        max_tokens=256,
        asked_max_tokens=None,
        output_tokens=owner if ran else 0,
        logical_blocks=40 if ran else None,
        physical_blocks=38 if ran else None,
        shared_within=0 if ran else None,
        shared_across=12 if ran and owner % 2 else None,
        peak_blocks=41 if ran else None,
        filled_slots=620 if ran else None,
        block_seconds=owner * 1.7 if ran else None,
        wait_ns={"pool": 300_000_000, "engine_busy": 4_000_000},
        wait_pool_ns=300_000_000 if owner % 4 else 0,
        wait_scheduler_ns=4_000_000,
        wait_quota_ns=0,
        wait_transfer_ns=0,
        wait_after_preempt_ns=0,
        preemptions=1 if owner % 7 == 0 else 0,
        preempted_by=[owner + 3] if owner % 7 == 0 else [],
        recomputed_tokens=120 if owner % 7 == 0 else 0,
        prefix_hit_tokens=256,
        alloc_failures=0,
        time_to_first_block_ns=SECOND // 2,
    )


def block_map_with_all_states(total: int, at_ns: int, *, tenant: str = "search") -> BlockMap:
    """Return a map with free, cached and active blocks, runs of owners, and unknown owners."""
    random = np.random.default_rng(17)
    owner = np.repeat(np.arange(101, 101 + total // 8 + 1), 8)[:total].astype(np.int64)
    random.shuffle(owner.reshape(-1))
    state = random.choice([0, 1, 2], total, p=[0.15, 0.25, 0.6]).astype(np.uint8)
    owner = np.where(state == 2, owner, 0)
    unknown = (random.random(total) < 0.02) & (state == 2)
    owner[unknown] = -1
    count = np.where(state == 2, random.choice([1, 1, 1, 2, 5, 12], total), 0).astype(np.int32)
    holders = [
        (int(first) + extra, block)
        for block, (first, num) in enumerate(zip(owner, count, strict=True))
        if first > 0
        for extra in range(int(num))
    ]
    filled = np.where(state == 2, random.choice([16, 16, 16, 5, 11, -1], total), -1)
    return BlockMap(
        at_ns=at_ns,
        total_blocks=total,
        block_size=16,
        state=state,
        count=count,
        owner=owner,
        tenant=np.where(owner > 0, owner % 3 + 1, 0).astype(np.int32),
        since_ns=at_ns - random.integers(0, 900, total) * SECOND,
        hash_known=state > 0,
        filled=filled.astype(np.int32),
        ref_owner=np.array([holder for holder, _ in holders], np.int64),
        ref_block=np.array([block for _, block in holders], np.int64),
        tenants={1: tenant, 2: "batch", 3: "chat"},
    )
