"""What a step samples for each complete sequence: a token, several, or candidates of a beam."""

import secrets
from typing import Final

from torch import Tensor

from engine.model.sampling import best_candidates, logprobs_of, sample, sample_several
from engine.runner import StepPlan, StepResult
from engine.sequence import Sequence

_REQUEST_STRIDE: Final = 1 << 20  # keeps the draws of one request's samples off the next one's


class StepSampler:
    """Fills a step's result from its logits."""

    def __init__(self) -> None:
        # What an unseeded request draws from: another one in each process.
        self._free_seed = secrets.randbits(64)

    def fill(self, result: StepResult, plan: StepPlan, sampled: list[int], logits: Tensor) -> None:
        """Choose what each complete sequence goes on with.

        Args:
            result: Its tokens and what goes with them are written in place.
            sampled: Indices in the plan, one for each row.
            logits: [len(sampled), vocab_size] fp32.
        """
        sequences = [plan.sequences[index] for index in sampled]
        rows = [row for row, seq in enumerate(sequences) if not seq.sampling.beam_width]
        if len(rows) < len(sequences):
            self._fill_candidates(result, sequences, sampled, logits)
            sampled, logits = [sampled[row] for row in rows], logits[rows]
            sequences = [sequences[row] for row in rows]
        token_ids = sample(
            logits,
            [seq.sampling for seq in sequences],
            seeds=[self._seed_of(seq, seq.sample_index) for seq in sequences],
            positions=[seq.num_tokens for seq in sequences],
        )
        for index, token_id in zip(sampled, token_ids, strict=True):
            result.token_ids[index] = token_id
        others = [row for row, seq in enumerate(sequences) if not seq.plain_sampling]
        if others:
            self._fill_more(result, sequences, sampled, logits, others)

    def _fill_candidates(
        self, result: StepResult, sequences: list[Sequence], sampled: list[int], logits: Tensor
    ) -> None:
        rows = [row for row, seq in enumerate(sequences) if seq.sampling.beam_width]
        widest = max(sequences[row].sampling.beam_width for row in rows)
        for row, best in zip(rows, best_candidates(logits[rows], 2 * widest), strict=True):
            result.candidates[sampled[row]] = best[: 2 * sequences[row].sampling.beam_width]

    def _fill_more(
        self,
        result: StepResult,
        sequences: list[Sequence],
        sampled: list[int],
        logits: Tensor,
        rows: list[int],
    ) -> None:
        """Add the tokens of samples that split off now, and the log-probabilities asked for."""
        for row in rows:
            seq = sequences[row]
            if seq.num_slots_reserved > 1:
                result.more_tokens[sampled[row]] = sample_several(
                    logits[row],
                    seq.sampling,
                    seeds=[self._seed_of(seq, i) for i in range(1, seq.num_slots_reserved)],
                    position=seq.num_tokens,
                )
        rows = [row for row in rows if sequences[row].sampling.wants_logprobs]
        if not rows:
            return
        indices = [sampled[row] for row in rows]
        chosen = [[result.token_ids[i], *result.more_tokens.get(i, ())] for i in indices]
        for index, logprobs in zip(indices, logprobs_of(logits[rows], chosen), strict=True):
            result.logprobs[index], *more = logprobs
            if more:
                result.more_logprobs[index] = more

    def _seed_of(self, seq: Sequence, sample_index: int) -> int:
        seed = seq.sampling.seed
        if seed is None:
            seed = self._free_seed + seq.root_id * _REQUEST_STRIDE
        return seed + sample_index
