"""What a step would cost on a machine that is not here.

    step = base + prefill x prefill_tokens + decode x decode_sequences + context x context_tokens
           (+ prefill_squared x prefill_tokens^2, 0 unless asked for)

`context_tokens` sums the lengths of the sequences in the step: attention reads all their KV. The
default is of the order of an 8-billion-parameter model in bf16 on one large GPU: 100 k prefill
tokens a second, a decode step of 6 ms for one sequence and about 10 ms for a batch of 64 at 2,000
tokens each. Such linear models fit measured steps within some 10 % away from very small batches
(Agrawal et al. 2024, arXiv:2405.05465, fits one per operator).
"""

import random
from dataclasses import dataclass

from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CostModel:
    """Linear cost of a step.

    Attributes:
        prefill_squared_ns: For each pair of prefill tokens of a step; what a linear fit lacks.
        noise_ratio: Standard deviation of a seeded factor around 1; 0 for none.
    """

    base_ns: int = 6_000_000
    prefill_token_ns: float = 10_000
    decode_sequence_ns: float = 20_000
    context_token_ns: float = 20.0
    sample_ns: int = 100_000
    prefill_squared_ns: float = 0.0
    noise_ratio: float = 0.0

    def __post_init__(self) -> None:
        for name in ("base_ns", "prefill_token_ns", "decode_sequence_ns", "context_token_ns"):
            value = getattr(self, name)
            if value < 0:
                raise ConfigError(name, found=value, accepted="0 or more")
        if not 0 <= self.noise_ratio < 1:
            raise ConfigError("noise_ratio", found=self.noise_ratio, accepted="0 to below 1")

    def step_ns(self, *, prefill_tokens: int, decode_sequences: int, context_tokens: int) -> int:
        """Return the compute time of a step, without noise."""
        return int(
            self.base_ns
            + self.prefill_token_ns * prefill_tokens
            + self.decode_sequence_ns * decode_sequences
            + self.prefill_squared_ns * prefill_tokens * prefill_tokens
            + self.context_token_ns * context_tokens
        )


class CostNoise:
    """A seeded factor around 1, never below a tenth."""

    def __init__(self, noise_ratio: float, *, seed: int) -> None:
        self._noise_ratio = noise_ratio
        self._random = random.Random(seed)

    def apply(self, ns: int) -> int:
        """Return `ns` with noise."""
        if not self._noise_ratio:
            return ns
        return int(ns * max(0.1, self._random.gauss(1.0, self._noise_ratio)))
