"""Whether one more sequence would be admitted now: what admission asks, and what a wait means.

Queue and judge ask the same questions, so that a stated cause is what kept the sequence out.
"""

from typing import Final, NamedTuple

from engine.block_pool import BlockPool
from engine.config import EngineConfig
from engine.lineup import NOBODY
from engine.policy.tenant_quotas import TenantQuotas
from engine.sequence import Sequence
from kvpulse.events import WaitFlag

QUOTA: Final = int(WaitFlag.TENANT_QUOTA)
SLOTS: Final = int(WaitFlag.BATCH_SLOTS)
POOL: Final = int(WaitFlag.POOL)
BEHIND: Final = int(WaitFlag.POOL_BEHIND)
BUDGET: Final = int(WaitFlag.TOKEN_BUDGET)
BUSY: Final = int(WaitFlag.ENGINE_BUSY)


class PassEnd(NamedTuple):
    """What a pass has left for one more sequence.

    Attributes:
        places_free: Of the batch.
        spent: By tier: whether the step has no token left for it.
        only_root: See `Lineup.only_root`.
    """

    places_free: int
    spent: tuple[bool, bool]
    only_root: int


class RoomRules:
    """Judges a sequence, or a gang by its first member, against places, tokens and blocks."""

    def __init__(self, config: EngineConfig, pool: BlockPool, quotas: TenantQuotas) -> None:
        self.quotas = quotas
        self._pool = pool
        # The blocks that the admission of each tier leaves alone while others run.
        self._watermarks = [
            config.watermark_blocks
            if tier.watermark_ratio is None
            else int(config.total_blocks * tier.watermark_ratio)
            for tier in config.policy.tiers
        ]

    def watermarks(self, end: PassEnd) -> list[int]:
        """Return for each tier what it leaves alone now, if no samples of its own run."""
        return [0] * len(self._watermarks) if end.only_root == NOBODY else self._watermarks

    def blocks_asked(self, seq: Sequence, level: int, end: PassEnd) -> int:
        """Return how many blocks have to be available for a sequence that would take `level`.

        Those above the level are the watermark and what is reserved for other tenants. A tenant's
        own reserve is its own: within it neither counts.
        """
        quotas = self.quotas
        if quotas.enabled:
            if level <= quotas.unfilled_reserve(seq.tenant):
                return level
            level += quotas.kept_from(seq.tenant)
        if end.only_root not in (NOBODY, seq.root_id):  # its own samples are no strangers
            level += self._watermarks[seq.tier]
        return level

    def obstacles(self, seq: Sequence, level: int, end: PassEnd) -> int:
        """Return what forbids the admission of a sequence, all others that wait left aside."""
        flags = BUDGET if end.spent[seq.tier] else 0
        places = seq.num_slots_reserved
        if seq.gang is not None:
            places = sum(member.num_slots_reserved for member in seq.gang.members)
        if places > end.places_free:
            flags |= SLOTS
        if self.quotas.enabled and level > self.quotas.headroom(seq.tenant):
            flags |= QUOTA
        if self.blocks_asked(seq, level, end) > self._pool.num_available:
            flags |= POOL
        return flags


class Standing:
    """Who of the queue so far keeps those behind from overtaking; one walk along the queue.

    Whoever waits for places keeps everyone behind waiting, whoever waits for blocks too, except
    those who stay within their own tenant's reserve, which takes nothing from it. Whoever waits for
    its tenant's quota keeps those of its tenant. Numbers of sequences; 0 is nobody.
    """

    __slots__ = ("_quotas", "for_places", "for_pool", "for_quota")

    def __init__(self, quotas: TenantQuotas) -> None:
        self.for_places = 0
        self.for_pool = 0
        self.for_quota: dict[int, int] = {}
        self._quotas = quotas

    def behind(self, seq: Sequence, level: int, flags: int) -> tuple[int, int]:
        """Return the flags with those that come from standing behind somebody, and who that is.

        The blocker is the one who makes the first flag hold, 0 if it holds by itself.
        """
        ahead = self.for_quota.get(seq.tenant, 0)
        if ahead and not flags & QUOTA:
            return flags | QUOTA, ahead
        if flags & QUOTA:
            return flags, 0
        if self.for_places and not flags & SLOTS:
            return flags | SLOTS, self.for_places
        if self.for_pool and not flags & POOL and not self._within_reserve(seq, level):
            flags |= BEHIND
            if not flags & SLOTS:
                return flags, self.for_pool
        return flags, 0

    def note(self, seq: Sequence, flags: int) -> None:
        """Let a sequence that waits with these flags stand in the way of those behind it."""
        if flags & QUOTA:
            self.for_quota.setdefault(seq.tenant, seq.seq_id)
            return
        if flags & SLOTS:
            self.for_places = self.for_places or seq.seq_id
        if flags & POOL:
            self.for_pool = self.for_pool or seq.seq_id

    def _within_reserve(self, seq: Sequence, level: int) -> bool:
        return self._quotas.enabled and level <= self._quotas.unfilled_reserve(seq.tenant)
