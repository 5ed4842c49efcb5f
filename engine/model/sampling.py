"""Choose each sequence's next token from its logits.

Every draw takes one uniform number that depends on (seed, position) alone, so what else is in the
batch, or whether the sequence was preempted in between, cannot change a seeded answer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

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
            token_ids[row] = _draw(logits[row], how, uniform(seeds[row], positions[row]))
    return token_ids


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


def _draw(logits: Tensor, params: SamplingParams, draw: float) -> int:
    """Walk the descending cumulative probability of what top-k and top-p keep."""
    num_kept = min(params.top_k or len(logits), len(logits))
    # Stable, so that equal logits always stand in id order.
    scores, token_ids = torch.sort(logits.double(), descending=True, stable=True)
    probabilities = torch.softmax(scores[:num_kept] / params.temperature, dim=0)
    cumulative = probabilities.cumsum(0)
    if params.top_p < 1.0:
        # The smallest set that reaches top_p: one token at least.
        num_kept = int((cumulative < params.top_p).sum()) + 1
        cumulative = cumulative[:num_kept]
    target = draw * float(cumulative[-1])
    chosen = int(torch.searchsorted(cumulative, target, right=True))
    return int(token_ids[min(chosen, len(cumulative) - 1)])
