"""Active blocks and block-seconds by tenant, second by second."""

import numpy as np

from agent.ledger.block_ledger import BlockEffects, BlockLedger
from agent.ledger.event_columns import Ints
from agent.ledger.intervals import Grid
from agent.ledger.runs import differences
from agent.rollups.labelled import TENANT_SLOTS, Sums, tenant_key


def tenant_blocks(blocks: BlockLedger) -> Ints:
    """Return the active blocks of each tenant."""
    tenants = np.minimum(blocks.tenant[blocks.count > 0], TENANT_SLOTS - 1)
    return np.bincount(tenants, minlength=TENANT_SLOTS)


def tenant_sums(seconds: list[Sums], grid: Grid, effects: BlockEffects, before: Ints) -> None:
    """Add each second's active blocks and block-ns by tenant.

    A block counts for the tenant that made it active, for as long as it stays so.
    """
    flips = effects.flips
    tenant = np.minimum(flips.tenant, TENANT_SLOTS - 1)
    present = np.flatnonzero(before + np.bincount(tenant, minlength=TENANT_SLOTS))
    if not len(present):
        return
    rank_of = np.zeros(TENANT_SLOTS, np.int64)
    rank_of[present] = np.arange(len(present))
    shape = (len(grid), len(present))
    size = shape[0] * shape[1]
    place = rank_of.take(tenant)
    place += (grid.index * len(present)).take(flips.record)
    sign = flips.starts * 2.0 - 1.0
    change = np.bincount(place, weights=sign, minlength=size).reshape(shape)
    ends = grid.ends()
    sign *= (ends[grid.index] - grid.t_ns).astype(np.float64).take(flips.record)
    within = np.bincount(place, weights=sign, minlength=size).reshape(shape)
    at_end = before[present] + np.cumsum(change, axis=0)
    at_start = np.vstack([before[present][None], at_end[:-1]])
    lengths = differences(ends, before=grid.before_ns)
    block_ns = (at_start * lengths[:, None] + within).astype(np.int64)
    told = np.bincount(place, minlength=size).reshape(shape).astype(bool) | (at_start > 0)
    for second_idx, rank_idx in np.argwhere(told).tolist():
        number, row = tenant_key(int(present[rank_idx])), seconds[second_idx]
        row["tenant_active_blocks", number] = int(at_end[second_idx, rank_idx])
        if block_ns[second_idx, rank_idx]:
            row["tenant_block_ns", number] = int(block_ns[second_idx, rank_idx])
