"""What an engine is built with: pool, limits, budgets."""

from dataclasses import dataclass, field
from typing import Final

from engine.block_table import blocks_for
from engine.errors import ConfigError
from engine.policy.scheduling_policy import PreemptionPolicy, SchedulingPolicy

PREFIX_INDEXES: Final = ("hash", "radix", "off")


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
        prefix_caching: Keep the content of freed full blocks for later prompts. False is another
            word for `prefix_index="off"`.
        prefix_index: How kept content is found: `hash` (chained block hashes: cheapest to ask),
            `radix` (a tree of token blocks: keeps what many share longer), `off`.
        host_blocks: Blocks in host memory for sequences that are swapped out; 0 has none. They cost
            pinned memory, and save computing tokens again.
        preemption: How a sequence gives its blocks up; `swap` and `auto` need `host_blocks`.
        policy: Who goes first, who gives way, and who may take how much.
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
    prefix_index: str = "hash"
    host_blocks: int = 0
    preemption: PreemptionPolicy = PreemptionPolicy.RECOMPUTE
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)

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
        self._check_caching()
        self._check_host()
        reserved = self.policy.num_reserved_blocks
        if reserved > self.total_blocks:
            accepted = f"at most total_blocks ({self.total_blocks}), all tenants together"
            raise ConfigError("reserved_blocks", found=reserved, accepted=accepted)

    def _check_caching(self) -> None:
        if self.prefix_index not in PREFIX_INDEXES:
            accepted = ", ".join(PREFIX_INDEXES)
            raise ConfigError("prefix_index", found=self.prefix_index, accepted=accepted)
        if not self.prefix_caching:
            object.__setattr__(self, "prefix_index", "off")
        elif self.prefix_index == "off":
            object.__setattr__(self, "prefix_caching", False)

    def _check_host(self) -> None:
        if not isinstance(self.host_blocks, int) or self.host_blocks < 0:
            accepted = "a whole number, 0 for none"
            raise ConfigError("host_blocks", found=self.host_blocks, accepted=accepted)
        if self.preemption not in tuple(PreemptionPolicy):
            accepted = ", ".join(PreemptionPolicy)
            raise ConfigError("preemption", found=self.preemption, accepted=accepted)
        if self.preemption != PreemptionPolicy.RECOMPUTE and not self.host_blocks:
            accepted = "recompute, or host_blocks of at least 1"
            raise ConfigError("preemption", found=str(self.preemption), accepted=accepted)

    @property
    def watermark_blocks(self) -> int:
        """Return how many blocks admission leaves alone."""
        return int(self.total_blocks * self.watermark_ratio)

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks hold `num_tokens` tokens."""
        return blocks_for(num_tokens, self.block_size)
