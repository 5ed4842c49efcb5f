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
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
