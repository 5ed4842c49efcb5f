"""A block map as text: one character per block, and a legend of who holds what. Pure."""

import string
from collections import Counter
from dataclasses import dataclass
from typing import Final

from agent.block_map import BlockMap
from kvpulse.events import BlockState

FREE: Final = "."
CACHED: Final = "-"
SHARED: Final = "&"  # held by more than one
UNKNOWN: Final = "?"  # active, and who holds it is not known
OTHERS: Final = "*"  # an owner beyond the letters
LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase


@dataclass(frozen=True, slots=True)
class Holder:
    """One owner in the legend."""

    letter: str
    owner: int
    num_blocks: int
    num_shared: int
    tenant: str


def list_holders(blocks: BlockMap) -> list[Holder]:
    """Return the owners, those with most blocks first, each with its letter."""
    held = Counter(blocks.ref_owner.tolist())
    shared = Counter(blocks.ref_owner[blocks.count[blocks.ref_block] > 1].tolist())
    tenants = dict(
        zip(
            blocks.ref_owner.tolist(),
            blocks.tenant[blocks.ref_block].tolist(),
            strict=True,
        )
    )
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return [
        Holder(
            letter=LETTERS[rank] if rank < len(LETTERS) else OTHERS,
            owner=owner,
            num_blocks=number,
            num_shared=shared[owner],
            tenant=blocks.tenants.get(tenants[owner], ""),
        )
        for rank, (owner, number) in enumerate(ranked)
    ]


def draw(blocks: BlockMap, *, width: int = 64) -> list[str]:
    """Return the map's lines, each beginning with the number of its first block."""
    letters = {holder.owner: holder.letter for holder in list_holders(blocks)}
    cells = [_cell(blocks, block, letters) for block in range(len(blocks.state))]
    digits = len(str(max(0, len(blocks.state) - 1)))
    return [
        f"{start:>{digits}}  {''.join(cells[start : start + width])}"
        for start in range(0, len(cells), width)
    ]


def legend(blocks: BlockMap, *, most: int = 20) -> list[str]:
    """Return lines that say what the characters mean."""
    count = Counter(blocks.state.tolist())
    withdrawn = blocks.num_out_of_service
    note = f" (of which {withdrawn} out of service)" if withdrawn else ""
    free = f"{FREE} free {count[BlockState.FREE]}{note}"
    active = f"active {count[BlockState.ACTIVE]} of {blocks.total_blocks}"
    lines = [
        f"{free}   {CACHED} cached {count[BlockState.CACHED]}   {active}   "
        f"{SHARED} shared   {UNKNOWN} owner unknown   {OTHERS} other owners"
    ]
    holders = list_holders(blocks)
    for holder in holders[:most]:
        shared = f", {holder.num_shared} shared" if holder.num_shared else ""
        tenant = f", tenant {holder.tenant}" if holder.tenant else ""
        blocks_text = f"{holder.num_blocks} block{'' if holder.num_blocks == 1 else 's'}"
        lines.append(f"{holder.letter} sequence {holder.owner}: {blocks_text}{shared}{tenant}")
    if len(holders) > most:
        lines.append(f"and {len(holders) - most} more sequences")
    return lines


def _cell(blocks: BlockMap, block: int, letters: dict[int, str]) -> str:
    state = blocks.state[block]
    if state == BlockState.FREE:
        return FREE
    if state == BlockState.CACHED:
        return CACHED
    if blocks.count[block] > 1:
        return SHARED
    return letters.get(int(blocks.owner[block]), UNKNOWN)
