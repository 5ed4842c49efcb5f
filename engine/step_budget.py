"""The tokens that a step may still run, all tiers together and each tier's own."""

from collections.abc import Sequence as Seq
from typing import Final

from engine.policy.scheduling_policy import TierPolicy
from engine.runner import StepPlan
from engine.sequence import Sequence

NO_LIMIT: Final = 1 << 62


class StepBudget:
    """What is left of a step's tokens. Decodes always fit; prefills take what they leave."""

    __slots__ = ("_tiers", "left")

    def __init__(self, num_tokens: int, tiers: Seq[TierPolicy]) -> None:
        self.left = num_tokens
        limits = [tier.step_tokens for tier in tiers]
        limited = any(limit is not None for limit in limits)
        self._tiers = [NO_LIMIT if n is None else n for n in limits] if limited else None

    def keep_for_decodes(self, running: Seq[Sequence], num_decoding: int) -> None:
        """Set aside one token for each sequence that decodes."""
        self.left -= num_decoding
        if self._tiers is not None:
            for seq in running:
                self._tiers[seq.tier] -= not seq.prefilling

    def settle(self, plan: StepPlan) -> None:
        """Count what is planned so far, and nothing else: who gave way decodes no more."""
        self.left -= sum(plan.num_new_tokens)
        if self._tiers is not None:
            for seq, n in zip(plan.sequences, plan.num_new_tokens, strict=True):
                self._tiers[seq.tier] -= n

    def take(self, seq: Sequence, wanted: int) -> int:
        """Take up to `wanted` tokens for a sequence's next chunk; return how many, or 0."""
        n = min(wanted, self.left)
        if self._tiers is not None:
            n = min(n, self._tiers[seq.tier])
        if n <= 0:
            return 0
        self.left -= n
        if self._tiers is not None:
            self._tiers[seq.tier] -= n
        return n

    def give_back(self, seq: Sequence, n: int) -> None:
        """Take back the tokens of a sequence that gave way after it was planned."""
        self.left += n
        if self._tiers is not None:
            self._tiers[seq.tier] += n

    def spent(self) -> tuple[bool, bool]:
        """Return for each tier whether nothing is left for it."""
        if self.left <= 0:
            return (True, True)
        if self._tiers is None:
            return (False, False)
        return (self._tiers[0] <= 0, self._tiers[1] <= 0)
