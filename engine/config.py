"""What an engine is built with: pool, limits, budgets."""

from dataclasses import dataclass

from engine.block_table import blocks_for
from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine; impossible ones raise `ConfigError`.

    Attributes:
        total_blocks: Blocks in the pool.
        block_size: Token slots of a block.
        max_batch: Most sequences that run at once.
        token_budget: Most tokens of one step, prefill and decode together.
        max_queue: Most sequences that wait; later ones are refused with `queue_full`.
        max_context: Most tokens of a sequence; None takes the runner's.
        watermark_ratio: Part of the pool that admission leaves alone while others run, so that
            running sequences can grow.
        prefix_caching: Keep the content of freed full blocks for later prompts.
        audit_interval_ns: Engine time between two audits and heartbeats.
    """

    engine: str = "engine"
    total_blocks: int = 1024
    block_size: int = 16
    max_batch: int = 64
    token_budget: int = 2048
    max_queue: int = 256
    max_context: int | None = None
    watermark_ratio: float = 0.01
    prefix_caching: bool = True
    audit_interval_ns: int = 1_000_000_000

    def __post_init__(self) -> None:
        for name in ("total_blocks", "block_size", "max_batch", "token_budget", "max_queue"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(name, found=value, accepted="a whole number of at least 1")
        if self.token_budget < self.max_batch:
            accepted = f"at least max_batch ({self.max_batch}), so that every decode fits a step"
            raise ConfigError("token_budget", found=self.token_budget, accepted=accepted)
        if self.max_context is not None and self.max_context < 2:
            raise ConfigError("max_context", found=self.max_context, accepted="at least 2")
        if not 0 <= self.watermark_ratio < 1:
            found = self.watermark_ratio
            raise ConfigError("watermark_ratio", found=found, accepted="0 or more and below 1")
        if self.audit_interval_ns < 1:
            found = self.audit_interval_ns
            raise ConfigError("audit_interval_ns", found=found, accepted="at least 1")

    @property
    def watermark_blocks(self) -> int:
        """Return how many blocks admission leaves alone."""
        return int(self.total_blocks * self.watermark_ratio)

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks hold `num_tokens` tokens."""
        return blocks_for(num_tokens, self.block_size)
