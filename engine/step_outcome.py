"""Take in what a step gave: tokens, ends, blocks that filled up."""

from typing import TYPE_CHECKING, NamedTuple

from engine.prefix_cache import PrefixCache
from engine.runner import NO_TOKEN, StepPlan, StepResult
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class StepOutcome(NamedTuple):
    """A step's tokens, and the sums that its `step` event states."""

    events: list[TokenEvent]
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int


class OutcomeTaker:
    """Moves the sequences of a step on by what the model gave."""

    def __init__(
        self, scheduler: Scheduler, cache: PrefixCache, *, recorder: "Recorder | None" = None
    ) -> None:
        self._scheduler = scheduler
        self._cache = cache
        self._recorder = recorder

    def take(self, plan: StepPlan, result: StepResult, now_ns: int) -> StepOutcome:
        """Count the computed tokens, append the sampled ones, and end what is complete."""
        events: list[TokenEvent] = []
        add_event, offer = events.append, self._cache.offer
        ended: list[tuple[Sequence, FinishReason]] = []
        prefill_tokens = decode_tokens = context_tokens = 0
        for seq, n, token in zip(
            plan.sequences, plan.num_new_tokens, result.token_ids, strict=True
        ):
            seq.num_computed_tokens += n
            computed = seq.num_computed_tokens
            context_tokens += computed
            if computed >= seq.next_hash_at:
                offer(seq)
            if seq.prefilling:
                prefill_tokens += n
                self._count_recomputed(seq, n)
                if token == NO_TOKEN:
                    continue
                self._begin_decoding(seq, now_ns)
            else:
                decode_tokens += 1
            seq.token_ids.append(token)
            seq.num_tokens = num_tokens = computed + 1
            reason = None
            if token in seq.stop_ids:
                reason = FinishReason.STOP
            elif num_tokens >= seq.max_num_tokens:
                reason = FinishReason.LENGTH
            if reason is not None:
                ended.append((seq, reason))
            add_event(TokenEvent(seq.seq_id, token, reason))
        for seq, reason in ended:
            self._scheduler.end(seq, reason)
        return StepOutcome(events, prefill_tokens, decode_tokens, context_tokens)

    def _count_recomputed(self, seq: Sequence, n: int) -> None:
        again = min(seq.num_computed_tokens, seq.recompute_until) - (seq.num_computed_tokens - n)
        if again > 0:
            seq.recomputed_tokens += again

    def _begin_decoding(self, seq: Sequence, now_ns: int) -> None:
        """A prompt, or what was preempted, is computed to its end: tokens follow now."""
        if self._recorder is not None:
            self._recorder.first_token(seq.seq_id, bool(seq.first_token_ns), seq.tenant)
        self._scheduler.tally.first_tokens += 1
        self._scheduler.num_decoding += 1
        seq.prefilling = False
        if not seq.first_token_ns:
            seq.first_token_ns = now_ns or 1
