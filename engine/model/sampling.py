"""Choose next tokens from logits, and say how likely they are.

Every draw takes one uniform number that depends on (seed, position) alone, so what else is in the
batch, or whether the sequence was preempted in between, cannot change a seeded answer. A
log-probability is the model's own, before temperature, top-k and top-p.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.runner import Candidate
from engine.sampling_params import SamplingParams

MASK_64 = (1 << 64) - 1
GREEDY_BELOW = 1e-5  # a smaller temperature would only overflow on its way to the best token


def sample(
    logits: Tensor,
    params: Sequence[SamplingParams],
    *,
    seeds: Sequence[int],
    positions: Sequence[int],
) -> list[int]:
    """Choose one token for each row.

    Args:
        logits: [num_rows, vocab_size] fp32.
        params: How to draw, for each row.
        seeds: What each row's draws depend on, besides the position.
        positions: Index that the new token will have in its sequence.
    """
    token_ids: list[int] = logits.argmax(dim=-1).tolist() if len(params) else []
    for row, how in enumerate(params):
        if how.temperature >= GREEDY_BELOW:
            (token_ids[row],) = _draw(logits[row], how, [uniform(seeds[row], positions[row])])
    return token_ids


def sample_several(
    logits: Tensor, params: SamplingParams, *, seeds: Sequence[int], position: int
) -> list[int]:
    """Choose a token for each seed from one row of logits, independently.

    Args:
        logits: [vocab_size] fp32.
        position: Index that the new tokens will have in their sequences.
    """
    if params.temperature < GREEDY_BELOW:
        return [int(logits.argmax())] * len(seeds)
    return _draw(logits, params, [uniform(seed, position) for seed in seeds])


def logprobs_of(logits: Tensor, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
    """Return the natural log-probability of the named tokens of each row.

    Args:
        logits: [num_rows, vocab_size] fp32.
        token_ids: Of each row, those asked for; as many as you like.
    """
    totals = logits.logsumexp(dim=-1)
    rows = torch.arange(len(token_ids), device=logits.device)
    rows = rows.repeat_interleave(torch.tensor([len(ids) for ids in token_ids], device=rows.device))
    flat = torch.tensor([token for ids in token_ids for token in ids], device=logits.device)
    values = iter((logits[rows, flat] - totals[rows]).tolist())
    return [[next(values) for _ in ids] for ids in token_ids]


def best_candidates(logits: Tensor, count: int) -> list[list[Candidate]]:
    """Return the `count` likeliest tokens of each row with their log-probabilities, best first.

    Args:
        logits: [num_rows, vocab_size] fp32.
        count: Cut to the size of the vocabulary.
    """
    scores, token_ids = logits.topk(min(count, logits.shape[-1]), dim=-1)
    logprobs = scores - logits.logsumexp(dim=-1, keepdim=True)
    return [
        [Candidate(*pair) for pair in zip(ids, values, strict=True)]
        for ids, values in zip(token_ids.tolist(), logprobs.tolist(), strict=True)
    ]


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) that depends on seed and position alone.

    Source: splitmix64, Steele et al. 2014 (doi:10.1145/2714064.2660195), once per argument.
    """
    return (_mix(_mix(seed & MASK_64) ^ position) >> 11) / (1 << 53)


def _mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & MASK_64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK_64
    return word ^ (word >> 31)


def _draw(logits: Tensor, params: SamplingParams, draws: Sequence[float]) -> list[int]:
    """Walk the descending cumulative probability of what top-k and top-p keep, for each draw."""
    num_kept = min(params.top_k or len(logits), len(logits))
    # Stable, so that equal logits always stand in id order.
    scores, token_ids = torch.sort(logits.double(), descending=True, stable=True)
    probabilities = torch.softmax(scores[:num_kept] / params.temperature, dim=0)
    cumulative = probabilities.cumsum(0)
    if params.top_p < 1.0:
        # The smallest set that reaches top_p: one token at least.
        num_kept = int((cumulative < params.top_p).sum()) + 1
        cumulative = cumulative[:num_kept]
    total = float(cumulative[-1])
    targets = cumulative.new_tensor([draw * total for draw in draws])
    chosen = torch.searchsorted(cumulative, targets, right=True)
    drawn: list[int] = token_ids[chosen.clamp_(max=len(cumulative) - 1)].tolist()
    return drawn
