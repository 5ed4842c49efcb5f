"""What the engine states about itself: what it runs with, its pool's account, that it lives."""

from typing import TYPE_CHECKING

from engine.allocate_timer import AllocateTimer, timer_for
from engine.block_pool import BlockPool
from engine.clock import Clock
from engine.config import EngineConfig
from engine.policy.scheduling_policy import changed_fields, tenant_ceilings
from engine.pool_results import PoolAudit
from engine.runner import RunnerDescription
from engine.scheduler import Scheduler

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

ENGINE_VERSION = "0.1.0"


class Reports:
    """Audits and heartbeats, each due once per interval of engine time."""

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        scheduler: Scheduler,
        *,
        host_pool: BlockPool | None = None,
        recorder: "Recorder | None" = None,
    ) -> None:
        self.due_ns = 0
        self._allocate_timer: AllocateTimer | None = None
        self._host_pool = host_pool
        self._config = config
        self._pool = pool
        self._scheduler = scheduler
        self._recorder = recorder

    def time_allocations(self, clock: Clock) -> None:
        """State how long a call to allocate takes, where the clock is one that can tell."""
        self._allocate_timer = timer_for(self._pool, clock)

    def state_config(self, runner: RunnerDescription, *, max_context: int) -> None:
        """State the fingerprint: everything that decides how the engine behaves."""
        config = self._config
        self._scheduler.tally.configs += 1
        if self._recorder is None:
            return
        self._recorder.config(
            {
                "engine": config.engine,
                "model": runner.model,
                "runner": runner.runner,
                "kv_format": runner.kv_format,
                "bytes_per_token": runner.bytes_per_token,
                "mask": runner.mask,
                "sliding_window": runner.sliding_window,
                **self._kv_groups(),
                "block_size": config.block_size,
                "total_blocks": config.total_blocks,
                "max_context": max_context,
                "max_batch": config.max_batch,
                "max_queue": config.max_queue,
                "token_budget": config.token_budget,
                "watermark_blocks": config.watermark_blocks,
                "prefix_caching": config.prefix_caching,
                "prefix_index": config.prefix_index,
                "host_blocks": config.host_blocks,
                "preemption": str(config.preemption),
                "policy": changed_fields(config.policy),
                "tenant_ceilings": tenant_ceilings(config.policy),
                "version": ENGINE_VERSION,
            }
        )

    def _kv_groups(self) -> dict[str, int]:
        """Say how many blocks tokens take: groups without a window all, the others so many."""
        span = self._scheduler.span
        windowed = [window for window in span.windows if window is not None]
        return {
            "kv_groups": span.num_groups,
            "windowed_kv_groups": len(windowed),
            "most_windowed_blocks": sum(map(span.most_under, windowed)),
        }

    def state(self, now_ns: int, *, step: int) -> PoolAudit:
        """Recount the pool, state the account and a heartbeat, and say when the next is due."""
        audit = self._pool.audit()
        tally, scheduler = self._scheduler.tally, self._scheduler
        tally.audits += 1
        tally.heartbeats += 1
        if self._recorder is not None:
            self._recorder.pool(
                audit.total,
                audit.active,
                audit.cached,
                audit.free,
                audit.sum_of_counts,
                audit.checksum,
                self.filled_slots(audit.active),
                audit.largest_free_run,
                allocate_ns=None if self._allocate_timer is None else self._allocate_timer.take(),
            )
            self._recorder.heartbeat(step, len(scheduler.live), len(scheduler.waiting))
        if self._host_pool is not None:
            self._state_host(self._host_pool.audit())
        self.due_ns = now_ns + self._config.audit_interval_ns
        return audit

    def _state_host(self, audit: PoolAudit) -> None:
        """State the account of the host's blocks."""
        self._scheduler.tally.audits += 1
        if self._recorder is not None:
            self._recorder.pool(
                audit.total,
                audit.active,
                audit.cached,
                audit.free,
                audit.sum_of_counts,
                audit.checksum,
                None,
                audit.largest_free_run,
                host=True,
            )

    def filled_slots(self, active_blocks: int) -> int:
        """Return the token slots in use in active blocks, each block once.

        What is empty is what running sequences hold beyond their computed tokens. Shared blocks
        are full, but for the last one of samples that have not written since they split.
        """
        empty, groups = self._scheduler.endings.leaked_empty_slots, self._scheduler.span.num_groups
        tails = set(self._scheduler.endings.leaked)
        for seq in self._scheduler.running:
            if seq.shares_tail:
                tail = seq.block_table.block_ids[-1]
                if tail in tails:
                    continue
                tails.add(tail)
            empty += groups * (seq.num_slots - seq.num_computed_tokens)
        return active_blocks * self._config.block_size - empty
