"""Every scheduling policy in one frozen value, with what each of them trades."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from engine.errors import ConfigError

SECOND_NS = 1_000_000_000
NUM_TIERS = 2  # 0 interactive, 1 batch
MAX_PRIORITY = 1_000


class PreemptionPolicy(StrEnum):
    """How a sequence gives its blocks up.

    `recompute` forgets the KV and computes it again: no memory elsewhere, but compute, less what
    the prefix cache still keeps. `swap` copies it to host blocks: no compute, but host memory and
    two copies. `auto` swaps what is long enough that computing it again would cost more than the
    copies (`SchedulingPolicy.swap_min_tokens`). With no room in the host, each recomputes.
    """

    RECOMPUTE = "recompute"
    SWAP = "swap"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """Limits of one tier; None is no limit of its own.

    Attributes:
        max_context: Most tokens of one of its sequences. Lower keeps single requests from holding
            much of the pool for long, and refuses the long ones (`context_too_long`).
        step_tokens: Most tokens of one step that its sequences run, decodes first (decodes always
            fit). Lower keeps the steps of the other tier short, and prefills this one slower.
        watermark_ratio: Part of the pool that admission leaves alone; None takes the engine's.
            Higher leaves room for what runs, so fewer preemptions, and admits later.
        max_queue: Most of its requests that wait. Lower refuses sooner instead of late.
    """

    max_context: int | None = None
    step_tokens: int | None = None
    watermark_ratio: float | None = None
    max_queue: int | None = None

    def __post_init__(self) -> None:
        _at_least("max_context", self.max_context, 2)
        _at_least("step_tokens", self.step_tokens, 1)
        _at_least("max_queue", self.max_queue, 1)
        _ratio("watermark_ratio", self.watermark_ratio)


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """What one tenant may take.

    Attributes:
        max_blocks: Most blocks active for it (`tenant_quota` while it waits for them); None is no
            ceiling. Lower protects the others, and leaves blocks idle when they need none.
        reserved_blocks: Blocks that nobody else may take, used or not. They make its admission
            certain, and are idle while it needs none (cached content may lie in them).
        weight: Its share of the engine while several tenants wait, against theirs.
    """

    max_blocks: int | None = None
    reserved_blocks: int = 0
    weight: int = 1

    def __post_init__(self) -> None:
        _at_least("max_blocks", self.max_blocks, 1)
        _at_least("reserved_blocks", self.reserved_blocks, 0)
        _at_least("weight", self.weight, 1)
        if self.max_blocks is not None and self.reserved_blocks > self.max_blocks:
            accepted = f"at most max_blocks ({self.max_blocks})"
            raise ConfigError("reserved_blocks", found=self.reserved_blocks, accepted=accepted)


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """Who goes first, who gives way, who may take how much; by default first come, first served.

    Attributes:
        aging_ns: What one level of priority is worth in waiting time: a request of priority p
            counts as having come p x `aging_ns` later. Larger makes priorities stricter; since
            waiting makes up for any priority in the end, nothing starves.
        batch_patience_ns: The same for the batch tier: how long one of its requests lets later
            interactive ones pass. Larger is kinder to people, slower for batches.
        fairness_ns_per_token: How much later a request counts as having come for each token that
            its tenant is ahead of the others, by weight; 0 turns fairness off. Once it exceeds the
            time a token takes in truth, shares win over the order of arrival.
        preempt_for_waiting: Let a waiting sequence of a better tier or priority take the place of
            running ones that come after it. Urgent ones start at once; work is done twice.
        protected_tokens: Tokens that a sequence yields after each start before a waiting one may
            take its place. More wastes less work, and lets urgent ones wait for that long.
        swap_min_tokens: `auto` preemption swaps sequences of at least so many computed tokens.
        high_watermark_ratio: Part of the pool in use (active) above which new requests are refused
            (`above_watermark`); None never refuses. Refusing early keeps those inside fast.
        low_watermark_ratio: Below this part new requests are taken again; None takes 0.9 of the
            high one. Further apart flaps less, and refuses longer.
        max_request_tokens: Most tokens of any sequence (`context_too_long`); None is the context.
        queue_timeout_ns: Longest a request waits to run for the first time; then it is rejected
            (`pool_timeout` if it waited for blocks, else `deadline`). 0 waits for ever.
        total_timeout_ns: Longest a request lives; then it ends with `timeout`. 0 for ever.
        interactive: Limits of tier 0.
        batch: Limits of tier 1; its cached blocks are evicted before tier 0's.
        tenants: Limits by alias.
        other_tenants: Limits of each alias that `tenants` does not name.
    """

    aging_ns: int = 10 * SECOND_NS
    batch_patience_ns: int = 600 * SECOND_NS
    fairness_ns_per_token: int = 0
    preempt_for_waiting: bool = True
    protected_tokens: int = 16
    swap_min_tokens: int = 256
    high_watermark_ratio: float | None = None
    low_watermark_ratio: float | None = None
    max_request_tokens: int | None = None
    queue_timeout_ns: int = 0
    total_timeout_ns: int = 0
    interactive: TierPolicy = field(default_factory=TierPolicy)
    batch: TierPolicy = field(default_factory=TierPolicy)
    tenants: Mapping[str, TenantPolicy] = field(default_factory=dict, hash=False)
    other_tenants: TenantPolicy = field(default_factory=TenantPolicy)

    def __post_init__(self) -> None:
        names = ("aging_ns", "batch_patience_ns", "fairness_ns_per_token", "protected_tokens")
        for name in (*names, "swap_min_tokens", "queue_timeout_ns", "total_timeout_ns"):
            _at_least(name, getattr(self, name), 0)
        _at_least("max_request_tokens", self.max_request_tokens, 2)
        _ratio("high_watermark_ratio", self.high_watermark_ratio)
        _ratio("low_watermark_ratio", self.low_watermark_ratio)
        low, high = self.low_watermark_ratio, self.high_watermark_ratio
        if low is not None and (high is None or low > high):
            accepted = f"at most high_watermark_ratio ({high})"
            raise ConfigError("low_watermark_ratio", found=low, accepted=accepted)
        if self.other_tenants.reserved_blocks:
            found = self.other_tenants.reserved_blocks
            accepted = "0 in other_tenants: a reserve needs a tenant by name"
            raise ConfigError("reserved_blocks", found=found, accepted=accepted)

    @property
    def tiers(self) -> tuple[TierPolicy, ...]:
        """Return the limits of each tier."""
        return (self.interactive, self.batch)

    @property
    def num_reserved_blocks(self) -> int:
        """Return the blocks that are reserved for tenants, all together."""
        return sum(tenant.reserved_blocks for tenant in self.tenants.values())

    def of_tenant(self, alias: str) -> TenantPolicy:
        """Return the limits of a tenant."""
        return self.tenants.get(alias, self.other_tenants)


def changed_fields(policy: SchedulingPolicy) -> str:
    """Return what a policy sets apart from the defaults, as a fingerprint states it."""
    default = SchedulingPolicy()
    names = [field.name for field in fields(policy)]
    changed = [n for n in names if getattr(policy, n) != getattr(default, n)]
    return ", ".join(f"{name}={getattr(policy, name)!r}" for name in changed)


def tenant_ceilings(policy: SchedulingPolicy) -> str:
    """Return each tenant's ceiling, such as `chat=40, *=100`; `*` is all that are not named."""
    named = [(alias, tenant.max_blocks) for alias, tenant in sorted(policy.tenants.items())]
    limits = [*named, ("*", policy.other_tenants.max_blocks)]
    return ", ".join(f"{alias}={most}" for alias, most in limits if most is not None)


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and (not isinstance(value, int) or value < least):
        raise ConfigError(name, found=value, accepted=f"a whole number of at least {least}")


def _ratio(name: str, value: float | None) -> None:
    if value is not None and not 0 <= value <= 1:
        raise ConfigError(name, found=value, accepted="from 0 to 1")
