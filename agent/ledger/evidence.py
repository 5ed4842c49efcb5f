"""Which blocks and sequences a broken law is about, as far as the ledger can tell."""

from typing import Final

import numpy as np

from agent.ledger.audit import PoolAccount
from agent.ledger.block_ledger import BlockEffects, BlockLedger
from agent.ledger.delta import NOBODY, Named
from agent.ledger.event_columns import EventColumns, Ints, unroll
from agent.ledger.owner_ledger import OwnerLedger
from kvpulse.events import U64_MASK

_ANY_ID: Final = 1 << 32


def of_references(owners: OwnerLedger, blocks: BlockLedger) -> Named:
    """Name the blocks whose count is not what sequences hold, and who holds them or owes any."""
    owners.references.settle(owners.held)
    held = np.bincount(owners.references.block, minlength=len(blocks.count))
    differ = np.flatnonzero(held != blocks.count)
    owing = owners.owner[owners.held < 0]
    return Named.of(differ, np.concatenate([_holders(owners, differ), owing]))


def of_audit(
    account: PoolAccount, effects: BlockEffects, blocks: BlockLedger, owners: OwnerLedger
) -> Named:
    """Name the block that explains a checksum alone, and who holds it.

    The checksum is the sum of weight x count. If one block's count is wrong by what the sums differ
    by, its weight times that is what the checksums differ by; which no other block's is, but by
    chance.
    """
    differs = account.sum_counts - int(effects.sum_after[account.record])
    step = (account.checksum - effects.checksum_after(account.record)) & U64_MASK
    if not differs:
        return NOBODY
    found = np.flatnonzero(blocks.weights * np.uint64(differs & U64_MASK) == np.uint64(step))
    if len(found) != 1:
        return NOBODY
    owners.references.settle(owners.held)
    return Named.of(found, found[:0] if account.host else _holders(owners, found))


def of_bad_ids(events: EventColumns, effects: BlockEffects, num_blocks: int) -> Named:
    """Name the ids that a pool does not have, and who stated them."""
    rows = unroll(events, effects.picked, _ANY_ID)
    block = rows.block.view(np.uint32)
    bad = block >= num_blocks
    return Named.of(block[bad].astype(np.int64), events.owner[rows.record[bad]].astype(np.int64))


def _holders(owners: OwnerLedger, blocks: Ints) -> Ints:
    references = owners.references
    return owners.owner[references.slot[np.isin(references.block, blocks)]]
