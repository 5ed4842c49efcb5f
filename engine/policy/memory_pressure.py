"""What to do when the model runs out of memory in a step: smaller steps, then fewer sequences."""

from typing import Final

from engine.config import EngineConfig

GOOD_STEPS_BEFORE_MORE: Final = 64


class MemoryPressure:
    """Limits of a step, lowered after each failure and raised again after a run of good steps.

    Attributes:
        token_budget: Most tokens of a step now.
        max_running: Most sequences that run now.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.token_budget = config.token_budget
        self.max_running = config.max_batch
        self._config = config
        self._good_steps = 0

    @property
    def lowered(self) -> bool:
        """Return whether a limit is lower than configured."""
        config = self._config
        return self.token_budget < config.token_budget or self.max_running < config.max_batch

    def failed(self, *, num_tokens: int, num_sequences: int) -> bool:
        """Lower a limit after a step of that size failed; False when none can be lowered."""
        self._good_steps = 0
        if num_tokens > num_sequences:
            self.token_budget = max(num_tokens // 2, num_sequences)
        elif num_sequences > 1:
            self.max_running = num_sequences // 2
        else:
            return False
        return True

    def succeeded(self) -> None:
        """Raise the limits after enough steps went well."""
        self._good_steps += 1
        if self._good_steps >= GOOD_STEPS_BEFORE_MORE:
            self._good_steps = 0
            config = self._config
            self.token_budget = min(self.token_budget * 2, config.token_budget)
            self.max_running = min(self.max_running * 2, config.max_batch)
