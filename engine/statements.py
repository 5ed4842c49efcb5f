"""What the scheduler states of sequences: each act is counted, and recorded if anybody records.

One place for both, so that the account taken at the source and the records cannot differ.
"""

from typing import TYPE_CHECKING, Final

from engine.accounts import Tally
from engine.pool_results import AllocationRefusal
from engine.sequence import Sequence
from kvpulse.events import FinishReason, PreemptMode, RejectReason, WaitCause

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

_LARGEST_WORD: Final = 0xFFFF_FFFE  # one below "not measured"
_LARGEST_SIGNED: Final = 0x7FFF_FFFF
_LARGEST_TIME: Final = (1 << 64) - 1


def as_word(value: int) -> int:
    """Return a number from 0 up as it fits a payload word."""
    return min(max(value, 0), _LARGEST_WORD)


def as_signed_word(value: int) -> int:
    """Return a number of either sign as it fits a payload word."""
    return min(max(value, -_LARGEST_SIGNED - 1), _LARGEST_SIGNED)


def as_time(value_ns: int) -> int:
    """Return a time as it fits two payload words."""
    return min(max(value_ns, 0), _LARGEST_TIME)


class Statements:
    """Counts and records the acts of one scheduler."""

    def __init__(self, *, recorder: "Recorder | None" = None) -> None:
        self.tally = Tally()
        self.recorder = recorder

    def admit(self, seq: Sequence) -> None:
        """State that a sequence runs for the first time."""
        if self.recorder is not None:
            self.recorder.admit(seq.seq_id, seq.tenant)
        self.tally.admits += 1

    def resume(self, seq: Sequence, tokens_found: int) -> None:
        """State that a sequence runs again, and what was found again of its tokens."""
        if self.recorder is not None:
            self.recorder.resume(seq.seq_id, tokens_found, seq.tenant)
        self.tally.resumes += 1

    def wait(self, seq: Sequence, cause: WaitCause, flags: int, blocker: int) -> None:
        """State why a sequence waits from now on."""
        if self.recorder is not None:
            self.recorder.wait(seq.seq_id, cause, flags, blocker, seq.tenant)
        self.tally.waits += 1

    def prefix_hit(self, seq: Sequence, hit_tokens: int, *, resumed: bool) -> None:
        """State what the index of contents had of a sequence that begins to run."""
        if self.recorder is not None:
            self.recorder.prefix_hit(seq.seq_id, hit_tokens, seq.num_tokens, resumed, seq.tenant)
        self.tally.prefix_hits += 1
        self.tally.prefix_hit_tokens += hit_tokens
        self.tally.prefix_queried_tokens += seq.num_tokens

    def allocate_failed(self, seq: Sequence, refusal: AllocationRefusal, cause: WaitCause) -> None:
        """State that a sequence could not get blocks, and why."""
        if self.recorder is not None:
            self.recorder.allocate_failed(
                seq.seq_id, refusal.needed, refusal.free, refusal.cached, cause, seq.tenant
            )
        self.tally.allocate_failures += 1

    def preempt(
        self,
        seq: Sequence,
        beneficiary: int,
        mode: PreemptMode,
        tokens_lost: int,
        blocks_freed: int,
        blocks_kept: int,
    ) -> None:
        """State that a sequence gave way: for whom, how, and what it lost."""
        if self.recorder is not None:
            self.recorder.preempt(
                seq.seq_id, beneficiary, mode, tokens_lost, blocks_freed, blocks_kept, seq.tenant
            )
        self.tally.preempts += 1

    def finish(self, seq: Sequence, reason: FinishReason) -> None:
        """State that a sequence ended."""
        if self.recorder is not None:
            self.recorder.finish(
                seq.seq_id,
                reason,
                seq.num_prompt_tokens,
                seq.num_output_tokens,
                seq.computed_tokens,
                seq.recomputed_tokens,
                seq.tenant,
            )
        finished = self.tally.finished
        finished[reason] = finished.get(reason, 0) + 1
        if seq.parent_id:
            forked = self.tally.finished_forks
            forked[reason] = forked.get(reason, 0) + 1

    def reject(
        self, seq_id: int, reason: RejectReason, *, needed: int, limit: int, tenant: int
    ) -> None:
        """State that a request is refused, at its arrival or out of the queue."""
        if self.recorder is not None:
            self.recorder.reject(seq_id, reason, needed, limit, tenant)
        rejected = self.tally.rejected
        rejected[reason] = rejected.get(reason, 0) + 1
