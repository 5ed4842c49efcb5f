"""How a sequence's next tokens are drawn, and when drawing ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What a client asked of sampling; the engine checks the ranges at admission.

    Attributes:
        max_tokens: Most tokens to generate, at least 1; clamped to the context at admission.
        temperature: 0 is greedy.
        top_p: In (0, 1]; 1 keeps all.
        top_k: 0 keeps all.
        seed: Draws repeat for the same seed; None draws freely.
        ignore_eos: Generate on past the model's end token.
        stop_token_ids: Further tokens that end the sequence.
        n: Answers that the client gets.
        best_of: Samples to choose them from; 1 stands for `n`.
        beam_width: Beams to search with instead of sampling; 0 for none.
        length_penalty: Exponent of a beam's length in its score: sum of log-probabilities over
            length ** penalty. Above 1 favours long answers, below 1 short ones.
        early_stopping: End a beam search as soon as `n` hypotheses are complete, rather than when
            no running beam can overtake the worst of them.
        logprobs: State each token's log-probability.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    n: int = 1
    best_of: int = 1
    beam_width: int = 0
    length_penalty: float = 1.0
    early_stopping: bool = False
    logprobs: bool = False

    @property
    def num_sequences(self) -> int:
        """Return how many sequences the request comes to: its beams, or its samples."""
        return self.beam_width or max(self.n, self.best_of)

    @property
    def wants_logprobs(self) -> bool:
        """Return whether log-probabilities are needed, asked for or not."""
        return self.logprobs or self.best_of > self.n or self.beam_width > 0
