"""What a simulated model names beside one token: several, candidates of a beam, log-probabilities.

The numbers mean nothing, but they depend on a sequence's request and tokens alone, so that a
simulated search goes the same way however it was preempted.
"""

from typing import Final

from engine.block_hashers import mix
from engine.runner import NO_TOKEN, Candidate, StepPlan, StepResult
from engine.sequence import Sequence

SIMULATED_TOKEN: Final = 1
SIMULATED_EOS: Final = 2
_FIRST_BEAM_TOKEN: Final = 3
_ENDS_ONE_IN: Final = 16  # how rarely a beam may end before its request's length


def draw_more(plan: StepPlan, result: StepResult) -> None:
    """Fill in what sequences with more than plain sampling get, in place."""
    for index, seq in enumerate(plan.sequences):
        reached = seq.num_computed_tokens + plan.num_new_tokens[index] == seq.num_tokens
        if seq.plain_sampling or not reached:
            continue
        if seq.sampling.beam_width:
            result.token_ids[index] = NO_TOKEN
            result.candidates[index] = _candidates(seq)
            continue
        num_more = seq.num_slots_reserved - 1
        if num_more:
            result.more_tokens[index] = [result.token_ids[index]] * num_more
        if seq.sampling.wants_logprobs:
            result.logprobs[index], *more = (
                _logprob(seq, seq.sample_index + i) for i in range(num_more + 1)
            )
            result.more_logprobs[index] = more


def _candidates(seq: Sequence) -> list[Candidate]:
    """Return twice the beam width of tokens, best first; the end token is rarely among them."""
    word = mix(seq.root_id << 20 ^ seq.num_tokens)
    for token_id in seq.token_ids[-4:]:
        word = mix(word ^ token_id)
    count = 2 * seq.sampling.beam_width
    token_ids = [_FIRST_BEAM_TOKEN + (word >> 8) % 97 + rank for rank in range(count)]
    if seq.num_tokens + 1 >= seq.stop_at:
        token_ids[0] = SIMULATED_EOS
    elif word % _ENDS_ONE_IN == 0:
        token_ids[word // _ENDS_ONE_IN % count] = SIMULATED_EOS
    logprob, candidates = 0.0, []
    for rank, token_id in enumerate(token_ids):
        logprob -= (1 + (word >> 3 * rank % 48) % 1024) / 1024
        candidates.append(Candidate(token_id, logprob))
    return candidates


def _logprob(seq: Sequence, sample_index: int) -> float:
    word = mix(mix(seq.root_id << 20 ^ seq.num_tokens) ^ sample_index)
    return -(1 + word % 1024) / 1024
