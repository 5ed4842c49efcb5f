"""The engine's books: what it counted of its own acts, and the recount that holds them to it."""

from collections import Counter

from engine.accounts import Accounts
from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.errors import AccountError
from engine.recording import KeyframeSource
from engine.scheduler import Scheduler
from kvpulse.events import Kind


class Books:
    """Reads pools, scheduler and keyframe source; changes nothing."""

    def __init__(
        self,
        pool: BlockPool,
        scheduler: Scheduler,
        keyframes: KeyframeSource,
        *,
        host_pool: BlockPool | None = None,
    ) -> None:
        self._pool = pool
        self._scheduler = scheduler
        self._keyframes = keyframes
        self._host_pool = host_pool

    def accounts(self, *, seconds_with_pool_wait: int) -> Accounts:
        """Return what pools and scheduler counted of their own acts."""
        tally = self._scheduler.tally
        rejected = {reason.name.lower(): n for reason, n in tally.rejected.items()}
        finished = {reason.name.lower(): n for reason, n in tally.finished.items()}
        forks = {reason.name.lower(): n for reason, n in tally.finished_forks.items()}
        if rejected:
            finished["rejected"] = sum(rejected.values())
        return Accounts(
            acts=self._acts(),
            requests=tally.arrivals,
            finished_by_reason=finished,
            forks_finished_by_reason=forks,
            rejected_by_reason=rejected,
            preemptions=tally.preempts,
            prefix_hit_tokens=tally.prefix_hit_tokens,
            prefix_queried_tokens=tally.prefix_queried_tokens,
            cancelled=tally.cancelled,
            seconds_with_pool_wait=seconds_with_pool_wait,
            steps=tally.steps,
            active_blocks=self._pool.num_active,
            cached_blocks=self._pool.num_cached,
            free_blocks=self._pool.num_free,
            leaked_blocks=len(set(self._scheduler.endings.leaked)),
        )

    def check(self) -> None:
        """Recount pools and tables, and raise `AccountError` where they disagree."""
        self._pool.check()
        self._scheduler.check()
        held = Counter(self._scheduler.endings.leaked)
        kept: Counter[int] = Counter()
        for seq in self._scheduler.live.values():
            held.update(seq.block_table.held_ids)
            kept.update(block for block in seq.host_block_ids if block != NULL_BLOCK)
        _compare(held, self._pool.counts)
        if self._host_pool is not None:
            self._host_pool.check()
            _compare(kept, self._host_pool.counts)

    def _acts(self) -> dict[Kind, int]:
        """Return the acts per kind of event; those on blocks, of gpu and host together."""
        acts = Counter(self._pool.acts)
        if self._host_pool is not None:
            acts.update(self._host_pool.acts)
        if self._scheduler.swapper is not None:
            acts.update(self._scheduler.swapper.acts)
        return {
            **self._scheduler.tally.acts(),
            **acts,
            Kind.COPY_ON_WRITE: self._scheduler.tables.num_copied,
            Kind.KEYFRAME: self._keyframes.num_calls,
        }


def _compare(held: Counter[int], counts: list[int]) -> None:
    """Raise where table entries and counts of a pool disagree."""
    for block_id, count in enumerate(counts):
        if held[block_id] != count:
            raise AccountError(
                f"block {block_id} has count {count}; {held[block_id]} table entries name it"
            )
