"""The engine's whole state as a keyframe, so that a journal segment can be read alone."""

from array import array

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.scheduler import Scheduler
from engine.sequence import Sequence, SequenceStatus
from engine.statements import as_signed_word, as_word
from kvpulse.events import SequenceState
from kvpulse.keyframe import NULL_ENTRY, Keyframe, KeyframeSequence

_STATES = {
    SequenceStatus.WAITING: SequenceState.WAITING,
    SequenceStatus.RUNNING: SequenceState.RUNNING,
    SequenceStatus.PREEMPTED: SequenceState.PREEMPTED,
    SequenceStatus.SWAPPED: SequenceState.SWAPPED,
}


class KeyframeSource:
    """Gives a Recorder its keyframes; made before the engine, which is attached to it later.

    Each call stands for one keyframe: the first, before there is an engine, answers None, and the
    Recorder writes the empty state.
    """

    def __init__(self) -> None:
        self.num_calls = 0
        self._pool: BlockPool | None = None
        self._scheduler: Scheduler | None = None
        self._host_pool: BlockPool | None = None
        self.last_step = 0

    def attach(
        self, pool: BlockPool, scheduler: Scheduler, *, host_pool: BlockPool | None = None
    ) -> None:
        """Name whose state it is."""
        self._pool, self._scheduler, self._host_pool = pool, scheduler, host_pool

    def take(self) -> Keyframe | None:
        """Return the present state."""
        self.num_calls += 1
        if self._pool is None or self._scheduler is None:
            return None
        return Keyframe(
            counts=array("I", self._pool.counts),
            hashes=self._pool.hashes(),
            cached_blocks=self._pool.cached_blocks(),
            sequences=[_state_of(seq) for seq in self._scheduler.live.values()],
            host_counts=array("I", self._host_pool.counts if self._host_pool else ()),
            step=self.last_step,
        )


def _state_of(seq: Sequence) -> KeyframeSequence:
    waits = seq.status is not SequenceStatus.RUNNING
    request, table = seq.request, seq.block_table
    return KeyframeSequence(
        owner=seq.seq_id,
        state=_STATES[seq.status],
        tenant=seq.tenant,
        cause=seq.wait_cause if waits else 0,
        flags=seq.wait_flags if waits else 0,
        blocker=seq.wait_blocker if waits else 0,
        since_ns=seq.since_ns,
        arrived_ns=seq.arrived_ns,
        prompt_tokens=seq.num_prompt_tokens,
        max_tokens=seq.max_num_tokens - seq.num_prompt_tokens,
        output_tokens=seq.num_output_tokens,
        computed_tokens=seq.computed_tokens,
        recomputed_tokens=seq.recomputed_tokens,
        preemptions=seq.num_preemptions,
        first_token_ns=seq.first_token_ns,
        priority=as_signed_word(request.priority),
        tier=as_word(request.tier),
        parent=seq.parent_id,
        retry=as_word(request.retry),
        table=[NULL_ENTRY if block == NULL_BLOCK else block for block in table.block_ids]
        if table.num_null
        else table.block_ids.copy(),
    )
