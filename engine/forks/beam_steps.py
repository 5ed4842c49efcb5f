"""Move beam searches on: from the candidates of a step to the beams of the next one."""

from collections.abc import Callable, Mapping

from engine.forks.beam_choice import Extension, choose
from engine.forks.forking import Forking
from engine.forks.gang import Gang
from engine.forks.hypotheses import Hypotheses
from engine.runner import Candidate, StepPlan
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason


class BeamSteps:
    """Advances each gang of which every member has its candidates."""

    def __init__(self, scheduler: Scheduler, forking: Forking) -> None:
        self._scheduler = scheduler
        self._forking = forking

    def take(
        self,
        plan: StepPlan,
        candidates: Mapping[int, list[Candidate]],
        begin_decoding: Callable[[Sequence], None],
    ) -> list[TokenEvent]:
        """Go on with the best beams; return all tokens of the searches that ended.

        Args:
            candidates: Of each beam that ran, by its index in the plan.
            begin_decoding: Told of each member whose prompt is computed to its end.
        """
        events: list[TokenEvent] = []
        for index, best in candidates.items():
            seq = plan.sequences[index]
            if seq.gang is None:
                seq.gang = Gang(seq, Hypotheses(seq.sampling))
            gang = seq.gang
            gang.pending[seq.seq_id] = best
            if len(gang.pending) == len(gang.members):
                for member in gang.members:
                    if member.prefilling:
                        begin_decoding(member)
                events += self._advance(gang)
        return events

    def _advance(self, gang: Gang) -> list[TokenEvent]:
        """Take one step of a search: its end, or one more token for each beam."""
        first = gang.members[0]
        choice = choose(
            gang.totals,
            [gang.pending[member.seq_id] for member in gang.members],
            width=gang.width,
            stop_ids=first.stop_ids,
        )
        gang.pending.clear()
        num_tokens = first.num_output_tokens + 1
        complete = first.num_tokens + 1 >= first.max_num_tokens
        for extension in choice.ended:
            _note(gang, extension, FinishReason.STOP)
        for extension in choice.going_on if complete else ():
            _note(gang, extension, FinishReason.LENGTH)
        going_on = choice.going_on
        if complete or not going_on or gang.hypotheses.settled(going_on[0].total, num_tokens):
            return self._finish(gang)
        self._go_on(gang, going_on)
        return []

    def _go_on(self, gang: Gang, going_on: list[Extension]) -> None:
        """Give each chosen extension a member; the best child of a beam stays in its place."""
        placed: dict[int, Extension] = {}
        others: list[Extension] = []
        for extension in going_on:
            if extension.parent in placed:
                others.append(extension)
            else:
                placed[extension.parent] = extension
        members, logprobs = gang.members, gang.logprobs
        spare = [place for place in range(len(members)) if place not in placed]
        for extension in others:
            parent = members[extension.parent]
            if spare:
                place = spare.pop(0)
                self._forking.take_on(members[place], parent)
                logprobs[place] = logprobs[extension.parent].copy()
            else:
                place = len(members)
                members.append(self._forking.split(parent, place))
                logprobs.append(logprobs[extension.parent].copy())
            placed[place] = extension
        members[0].num_slots_reserved = 1  # whoever was to come has come
        gang.width = len(going_on)
        gang.totals = [placed[place].total for place in sorted(placed)]
        for place, extension in placed.items():
            member = members[place]
            member.token_ids.append(extension.token_id)
            member.num_tokens += 1
            logprobs[place].append(extension.logprob)
        for place in reversed(spare):
            del logprobs[place]
            self._scheduler.end(members.pop(place), FinishReason.STOP)

    def _finish(self, gang: Gang) -> list[TokenEvent]:
        """End every member; return the tokens of the best answers, best first."""
        best = gang.hypotheses.best()
        events: list[TokenEvent] = []
        for rank, hypothesis in enumerate(best):
            seq_id = gang.members[rank].seq_id if rank < len(gang.members) else gang.root_id
            last = len(hypothesis.token_ids) - 1
            for i, (token_id, logprob) in enumerate(
                zip(hypothesis.token_ids, hypothesis.logprobs, strict=True)
            ):
                reason = hypothesis.reason if i == last else None
                events.append(TokenEvent(seq_id, token_id, reason, gang.root_id, rank, logprob))
        for rank, member in enumerate(gang.members):
            reason = FinishReason.STOP
            if rank < len(best):  # what its `finish` states is the answer that bears its number
                reason = best[rank].reason
                member.num_tokens = member.num_prompt_tokens + len(best[rank].token_ids)
            self._scheduler.end(member, reason)
        return events


def _note(gang: Gang, extension: Extension, reason: FinishReason) -> None:
    """Keep a complete answer among the hypotheses."""
    token_ids = gang.members[extension.parent].output_token_ids
    logprobs = gang.logprobs[extension.parent]
    gang.hypotheses.add([*token_ids, extension.token_id], [*logprobs, extension.logprob], reason)
