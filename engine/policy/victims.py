"""Who gives way when blocks or places are short, and why.

The batch is in order of rank, so the last one has the least claim: lowest tier, then priority, then
latest arrival, after aging. It gives way, beams all together. Two limits narrow the choice down:

- A tenant at its ceiling gains from its own sequences only, and a sequence that holds no more than
  its tenant's reserve frees nothing that others may take.
- For the sake of one that *waits*, only those give way whom it outranks (`outranks`) and who have
  yielded their protected tokens since they last began. If all of them together would not make room,
  nobody does.

So each preemption goes down a fixed order, and whoever is first in it is never preempted: there is
always one who gets on.
"""

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.lineup import Lineup, group_of
from engine.policy.ranking import outranks
from engine.policy.scheduling_policy import SchedulingPolicy
from engine.policy.tenant_quotas import TenantQuotas
from engine.sequence import Sequence


class Why(StrEnum):
    """Why it was this sequence that gave way."""

    LAST = "the last in order of tier, priority and arrival gives way to one that needs a block"
    ITSELF = "it needs a block, and nobody behind it holds one that it may have"
    LAST_OF_TENANT = "its tenant is at its ceiling: the tenant's last gives way to an earlier one"
    OUTRANKED = "one of a better tier or priority waits, and it has yielded its protected tokens"
    MEMORY = "the model ran out of memory: fewer sequences run"


class VictimChoice(NamedTuple):
    """Who gives way for whom.

    Attributes:
        beneficiary: The sequence that gains, 0 if nobody but the victim itself.
        candidates: How many could have been chosen.
    """

    victim: Sequence
    beneficiary: int
    why: Why
    candidates: int


class VictimChooser:
    """Chooses among the running sequences; changes nothing."""

    def __init__(
        self, policy: SchedulingPolicy, pool: BlockPool, quotas: TenantQuotas, lineup: Lineup
    ) -> None:
        self._policy = policy
        self._pool = pool
        self._quotas = quotas
        self._lineup = lineup

    def for_growth(self, seq: Sequence, *, at_ceiling: bool) -> VictimChoice:
        """Return who gives way to a running sequence that needs a block: at worst itself."""
        running = self._lineup.running
        if not self._quotas.enabled:
            return self._growth_choice(seq, running[-1], Why.LAST, len(running))
        first = running.index(group_of(seq)[0])
        candidates = [
            other
            for other in running[first:]
            if other.tenant == seq.tenant or (not at_ceiling and self._frees_for_others(other))
        ]
        why = Why.LAST_OF_TENANT if at_ceiling else Why.LAST
        return self._growth_choice(seq, candidates[-1], why, len(candidates))

    def for_waiting(
        self, seq: Sequence, *, blocks: int, places: int, at_ceiling: bool
    ) -> list[VictimChoice]:
        """Return who gives way to a waiting sequence, the first to go first; empty for nobody.

        Args:
            blocks: How many more have to be available (or free for its tenant, if `at_ceiling`).
            places: How many more places of the batch it needs.
        """
        if not self._policy.preempt_for_waiting:
            return []
        candidates = self._outranked(seq, own_tenant_only=at_ceiling)
        chosen: list[VictimChoice] = []
        freed = FreedBlocks(self._pool)
        for group in candidates:
            if freed.num_blocks >= blocks and places <= 0:
                break
            for member in group:
                freed.add(member)
                places -= member.num_slots_reserved
            chosen.append(VictimChoice(group[0], seq.seq_id, Why.OUTRANKED, len(candidates)))
        if freed.num_blocks < blocks or places > 0:
            return []
        return chosen

    def _growth_choice(
        self, seq: Sequence, victim: Sequence, why: Why, candidates: int
    ) -> VictimChoice:
        if victim is seq or (victim.gang is not None and victim.gang is seq.gang):
            return VictimChoice(seq, 0, Why.ITSELF, candidates)
        return VictimChoice(victim, seq.seq_id, why, candidates)

    def _outranked(self, seq: Sequence, *, own_tenant_only: bool) -> list[list[Sequence]]:
        """Return the groups that may give way to a waiting sequence, the last in order first."""
        groups: list[list[Sequence]] = []
        seen: set[int] = set()
        for other in reversed(self._lineup.running):
            if other.rank_ns <= seq.rank_ns:
                break  # so do all before it
            if other.seq_id in seen or not outranks(seq, other):
                continue
            group = group_of(other)
            seen.update(member.seq_id for member in group)
            if own_tenant_only and other.tenant != seq.tenant:
                continue
            if other.tenant != seq.tenant and self._quotas.reserved(other.tenant):
                continue  # what is reserved is not taken
            if all(member.num_output_tokens >= member.protected_until for member in group):
                groups.append(group)
        return groups

    def _frees_for_others(self, seq: Sequence) -> bool:
        """Return whether what a sequence holds is more than its tenant's reserve."""
        reserved = self._quotas.reserved(seq.tenant)
        return not reserved or self._pool.active_by_tenant[seq.tenant] > reserved


class FreedBlocks:
    """Counts the blocks that nobody would hold any more if some sequences gave way."""

    def __init__(self, pool: BlockPool) -> None:
        self.num_blocks = 0
        self._counts = pool.counts
        self._dropped: Counter[int] = Counter()

    def add(self, seq: Sequence) -> None:
        """Let one more sequence give way."""
        for block_id in seq.block_table.block_ids:
            if block_id == NULL_BLOCK:
                continue
            self._dropped[block_id] += 1
            if self._dropped[block_id] == self._counts[block_id]:
                self.num_blocks += 1
