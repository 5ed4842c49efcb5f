"""Take a running sequence's blocks: it waits again, its KV to be computed again or in the host."""

from collections import deque
from typing import Final, NamedTuple

from engine.block_table import NULL_BLOCK
from engine.config import EngineConfig
from engine.lineup import group_of
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.policy.victims import VictimChoice, Why
from engine.runner import StepPlan
from engine.scheduling_state import SchedulingState
from engine.sequence import Sequence, SequenceStatus
from engine.wait_causes import WaitJudge
from kvpulse.events import PreemptMode

PREEMPTIONS_KEPT: Final = 64


class Preemption(NamedTuple):
    """That a sequence gave way: for whom (0 nobody), why it was this one, and what it cost.

    Attributes:
        candidates: How many could have been chosen.
        tokens_lost: To be computed again, as far as they are not found again.
        blocks_kept: Of the freed ones, those whose content stays cached.
    """

    victim: int
    beneficiary: int
    why: Why
    candidates: int
    mode: PreemptMode
    tokens_lost: int
    blocks_freed: int
    blocks_kept: int

    def __str__(self) -> str:
        gains = f"for sequence {self.beneficiary}" if self.beneficiary else "for nobody else"
        return (
            f"sequence {self.victim} gave way {gains}, chosen of {self.candidates}: {self.why}; "
            f"by {self.mode.name.lower()}, {self.tokens_lost} tokens lost, "
            f"{self.blocks_freed} blocks freed, {self.blocks_kept} of them cached"
        )

    def as_json(self) -> dict[str, object]:
        """Return it as JSON has it, and once more in words."""
        told = {"why": str(self.why), "mode": self.mode.name.lower(), "in_words": str(self)}
        return self._asdict() | told


class Preemptor:
    """Carries out the choice of a victim, and states what it cost.

    Attributes:
        latest: The latest preemptions, the newest last.
        this_pass: Whoever gave way in this pass to one that waits.
        somebody_gave_up: True once a sequence gave way to nobody: it may never fit again.
    """

    def __init__(self, state: SchedulingState, judge: WaitJudge) -> None:
        self.latest: deque[Preemption] = deque(maxlen=PREEMPTIONS_KEPT)
        self.this_pass: set[int] = set()
        self.somebody_gave_up = False
        self._state = state
        self._judge = judge

    def preempt(self, choice: VictimChoice, plan: StepPlan) -> None:
        """Let the victim, and all of its gang, wait again; what it had planned is dropped."""
        self.somebody_gave_up |= not choice.beneficiary
        group = group_of(choice.victim)
        _remember_shared(group)
        for seq in reversed(group):
            unplan(seq, plan)
            self._take_blocks(seq, choice, plan)
            self._let_wait(seq)

    def _take_blocks(self, seq: Sequence, choice: VictimChoice, plan: StepPlan) -> None:
        state, tokens_lost = self._state, seq.num_computed_tokens
        table = seq.block_table
        num_blocks = len(table) - table.num_null
        if self._swaps(seq):
            assert state.swapper is not None, "asked before"
            freed = state.swapper.swap_out(seq, plan).freed
            mode, tokens_lost = PreemptMode.SWAP, 0
        else:
            freed = state.pool.free(seq.seq_id, table.give_up(), seq.tenant, seq.tier)
            mode = PreemptMode.RECOMPUTE
        cost = (mode, tokens_lost, num_blocks, freed.to_cache)
        self.latest.append(
            Preemption(seq.seq_id, choice.beneficiary, choice.why, choice.candidates, *cost)
        )
        state.say.preempt(seq, choice.beneficiary, *cost)
        state.lineup.take_out(seq)
        seq.num_slots = 0
        seq.shares_tail = False
        if mode is PreemptMode.SWAP:
            seq.status = SequenceStatus.SWAPPED
            return
        seq.status = SequenceStatus.PREEMPTED
        seq.recompute_until = max(seq.recompute_until, tokens_lost)
        seq.finished_computed_tokens += tokens_lost - seq.computed_from
        seq.num_computed_tokens = seq.computed_from = 0

    def _let_wait(self, seq: Sequence) -> None:
        seq.prefilling = True
        seq.num_preemptions += 1
        if seq.gang is not None:
            seq.gang.pending.clear()  # what its beams were to go on with is computed again
        self._judge.enter(seq, self._state.clock.now_ns())
        self._state.lineup.add_waiting(seq)

    def _swaps(self, seq: Sequence) -> bool:
        """Return whether a sequence's blocks go to the host.

        Beams do not: what they share would come back once for each of them.
        """
        config, swapper = self._state.config, self._state.swapper
        if swapper is None or seq.gang is not None or not seq.num_computed_tokens:
            return False
        return _worth_swapping(seq, config) and swapper.can_take(seq)


def _worth_swapping(seq: Sequence, config: EngineConfig) -> bool:
    if config.preemption is PreemptionPolicy.AUTO:
        return seq.num_computed_tokens >= config.policy.swap_min_tokens
    return config.preemption is PreemptionPolicy.SWAP


def unplan(seq: Sequence, plan: StepPlan) -> None:
    """Take a sequence out of a step's plan; block moves that it caused stay, and do no harm."""
    if seq in plan.sequences:
        index = plan.sequences.index(seq)
        del plan.sequences[index], plan.num_new_tokens[index]


def _remember_shared(group: list[Sequence]) -> None:
    """Note how many full leading blocks all of a gang have in common: to share them again."""
    if len(group) == 1:
        group[0].num_shared_blocks = 0
        return
    first = group[0].block_table
    # Places of the first KV group tell of all: the tokens are the same, or they are not.
    size, tables = (
        first.block_size,
        [seq.block_table.block_ids[:: first.num_groups] for seq in group],
    )
    most = min(seq.num_computed_tokens for seq in group) // size
    # The same, whatever slid away since; and what they once had in common, they still have.
    common = max(min(group[0].num_prompt_tokens // size, most), group[0].num_shared_blocks)
    for index in range(common, most):
        held = tables[0][index]
        if held != NULL_BLOCK and all(table[index] == held for table in tables):
            common = index + 1  # and so is all before it, which may have slid out of a window
    for seq in group:
        seq.num_shared_blocks = common
