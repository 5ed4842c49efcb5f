"""Take in what a step gave: tokens, ends, blocks that filled up, sequences that split."""

from typing import TYPE_CHECKING, NamedTuple

from engine.forks.beam_steps import BeamSteps
from engine.forks.forking import Forking
from engine.prefix_index.protocol import PrefixIndex
from engine.runner import NO_TOKEN, StepPlan, StepResult
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.sliding_window import SlidingWindow
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

End = tuple[Sequence, FinishReason]

_new_event = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class StepOutcome(NamedTuple):
    """A step's tokens, and the sums that its `step` event states."""

    events: list[TokenEvent]
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int


class OutcomeTaker:
    """Moves the sequences of a step on by what the model gave."""

    def __init__(
        self,
        scheduler: Scheduler,
        cache: PrefixIndex,
        forking: Forking,
        *,
        window: SlidingWindow | None = None,
        recorder: "Recorder | None" = None,
    ) -> None:
        self._scheduler = scheduler
        self._cache = cache
        self._forking = forking
        self._beams = BeamSteps(scheduler, forking)
        self._window = window
        self._recorder = recorder

    def take(self, plan: StepPlan, result: StepResult, now_ns: int) -> StepOutcome:
        """Count the computed tokens, append the sampled ones, and end what is complete."""
        events: list[TokenEvent] = []
        add_event, offer = events.append, self._cache.offer
        ended: list[End] = []
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
                if token == NO_TOKEN:
                    continue  # a beam: its candidates decide, all beams together
            seq.token_ids.append(token)
            seq.num_tokens = num_tokens = computed + 1
            reason = None
            if token in seq.stop_ids:
                reason = FinishReason.STOP
            elif num_tokens >= seq.max_num_tokens:
                reason = FinishReason.LENGTH
            if reason is not None:
                ended.append((seq, reason))
            add_event(
                _new_event(
                    TokenEvent, (seq.seq_id, token, reason, seq.root_id, seq.sample_index, 0.0)
                )
            )
        events = self._settle(plan, result, events, ended, now_ns)
        return StepOutcome(events, prefill_tokens, decode_tokens, context_tokens)

    def _settle(
        self,
        plan: StepPlan,
        result: StepResult,
        events: list[TokenEvent],
        ended: list[End],
        now_ns: int,
    ) -> list[TokenEvent]:
        """Slide windows, fork, end what is complete, and move searches on; return all tokens.

        In this order: blocks behind the window are not shared first, and a sample that ends with
        its first token is forked all the same, since its siblings go on from its blocks.
        """
        if self._window is not None:
            for seq in plan.sequences:
                self._window.slide(seq)
        if result.logprobs:
            events = _with_logprobs(events, result)
        for index in result.more_tokens:
            events += self._split(plan.sequences[index], index, result, ended)
        for seq, reason in ended:
            self._scheduler.end(seq, reason)
        if result.candidates:
            events += self._beams.take(
                plan, result.candidates, lambda seq: self._begin_decoding(seq, now_ns)
            )
        return events

    def _split(
        self, parent: Sequence, index: int, result: StepResult, ended: list[End]
    ) -> list[TokenEvent]:
        """Fork a sequence whose prompt was just computed into its samples."""
        parent.num_slots_reserved = 1
        parent.plain_sampling = not parent.sampling.wants_logprobs
        tokens = result.more_tokens[index]
        logprobs = result.more_logprobs.get(index) or [0.0] * len(tokens)
        events = []
        for place, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True), start=1):
            child = self._forking.split(parent, place)
            child.token_ids[-1] = token
            reason = None
            if token in child.stop_ids:
                reason = FinishReason.STOP
            elif child.num_tokens >= child.max_num_tokens:
                reason = FinishReason.LENGTH
            if reason is not None:
                ended.append((child, reason))
            events.append(TokenEvent(child.seq_id, token, reason, child.root_id, place, logprob))
        return events

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


def _with_logprobs(events: list[TokenEvent], result: StepResult) -> list[TokenEvent]:
    """Give the events of a step, one for each sampled token in order, their log-probability."""
    sampled = [index for index, token in enumerate(result.token_ids) if token != NO_TOKEN]
    return [
        event._replace(logprob=result.logprobs.get(index, 0.0))
        for index, event in zip(sampled, events, strict=True)
    ]
