"""The complete answers of a beam search, scored by length, and when no better one can come."""

from math import pow
from typing import NamedTuple

from engine.sampling_params import SamplingParams
from kvpulse.events import FinishReason


class Hypothesis(NamedTuple):
    """A complete answer: its generated tokens, the end token among them."""

    score: float
    token_ids: list[int]
    logprobs: list[float]
    reason: FinishReason


def score_of(total_logprob: float, num_tokens: int, length_penalty: float) -> float:
    """Return how good an answer is: higher is better.

    Args:
        total_logprob: Sum of the natural log-probabilities of its tokens.
        num_tokens: Generated tokens, the end token among them.
        length_penalty: Exponent of the length; 0 compares sums, 1 means.

    Source: Wu et al. 2016 (arXiv:1609.08144), section 7, in the form of Hugging Face transformers.
    """
    return total_logprob / pow(num_tokens, length_penalty)


class Hypotheses:
    """The best complete answers of one search, at most as many as it has beams."""

    def __init__(self, sampling: SamplingParams) -> None:
        self._sampling = sampling
        self._kept: list[Hypothesis] = []  # best first

    def add(self, token_ids: list[int], logprobs: list[float], reason: FinishReason) -> None:
        """Keep a complete answer, if it is among the best; of equal ones the older stays."""
        score = score_of(sum(logprobs), len(token_ids), self._sampling.length_penalty)
        self._kept.append(Hypothesis(score, token_ids, logprobs, reason))
        self._kept.sort(key=lambda hypothesis: -hypothesis.score)
        del self._kept[self._sampling.beam_width :]

    def settled(self, best_total: float, num_tokens: int) -> bool:
        """Return whether the search ends, although beams could go on.

        It ends with as many answers as beams: at once with `early_stopping`, else when the best
        running beam, were it complete at its present length, would not be among them.

        Args:
            best_total: Largest sum of log-probabilities of a running beam.
            num_tokens: Generated tokens of the running beams.
        """
        if len(self._kept) < self._sampling.beam_width:
            return False
        attainable = score_of(best_total, num_tokens, self._sampling.length_penalty)
        return self._sampling.early_stopping or self._kept[-1].score >= attainable

    def best(self) -> list[Hypothesis]:
        """Return the `n` best answers, best first."""
        return self._kept[: self._sampling.n]
