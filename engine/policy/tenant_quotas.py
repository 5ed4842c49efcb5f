"""What each tenant may take of the pool: ceilings, and reserves that nobody else may take.

A reserved block is one that the tenant may take whatever the others do. While it does not hold that
many, the rest of its reserve is kept back from everybody else; so the blocks that can be taken are
never fewer than all unfilled reserves together.
"""

from typing import Final

from engine.block_pool import BlockPool
from engine.policy.scheduling_policy import SchedulingPolicy, TenantPolicy

NO_CEILING: Final = 1 << 62


class TenantQuotas:
    """Answers how many blocks a tenant may take now."""

    def __init__(self, policy: SchedulingPolicy, pool: BlockPool) -> None:
        self.enabled = any(
            tenant.max_blocks is not None or tenant.reserved_blocks
            for tenant in (policy.other_tenants, *policy.tenants.values())
        )
        self._policy = policy
        self._pool = pool
        self._limits: dict[int, TenantPolicy] = {}
        self._reserves: dict[int, int] = {}

    def name(self, tenant: int, alias: str) -> TenantPolicy:
        """Say which alias a tenant's number stands for; return its limits."""
        limits = self._limits.get(tenant)
        if limits is None:
            limits = self._limits[tenant] = self._policy.of_tenant(alias)
            if limits.reserved_blocks:
                self._reserves[tenant] = limits.reserved_blocks
        return limits

    def ceiling(self, tenant: int) -> int:
        """Return the most blocks that may be active for a tenant."""
        most = self._limits_of(tenant).max_blocks
        return NO_CEILING if most is None else most

    def headroom(self, tenant: int) -> int:
        """Return how many more blocks may become active for a tenant."""
        return self.ceiling(tenant) - self._pool.active_by_tenant[tenant]

    def reserved(self, tenant: int) -> int:
        """Return how many blocks are reserved for a tenant at all."""
        return self._reserves.get(tenant, 0)

    def unfilled_reserve(self, tenant: int) -> int:
        """Return how many blocks nobody but this tenant may take."""
        reserved = self._reserves.get(tenant, 0)
        return max(reserved - self._pool.active_by_tenant[tenant], 0) if reserved else 0

    def kept_from(self, tenant: int) -> int:
        """Return how many blocks a tenant must leave for the reserves of others."""
        others = (self.unfilled_reserve(other) for other in self._reserves if other != tenant)
        return sum(others)

    @property
    def total_blocks(self) -> int:
        """Return the blocks of the pool, those out of service left aside."""
        return self._pool.total_blocks

    def most_for(self, tenant: int) -> int:
        """Return the blocks that a tenant could take alone: all but the reserves of others."""
        others = sum(n for other, n in self._reserves.items() if other != tenant)
        return max(self._pool.total_blocks - others, 0)  # a pool may shrink below its reserves

    def most_ever(self, tenant: int) -> int:
        """Return the most blocks that a tenant can come to hold while it is alone."""
        return min(self.most_for(tenant), self.ceiling(tenant))

    def _limits_of(self, tenant: int) -> TenantPolicy:
        return self._limits.get(tenant, self._policy.other_tenants)
