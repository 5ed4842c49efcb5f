"""What is known of one block, and which sequences a map can light."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent.pool_usage import leaker_words
from agent.reads.models import Leak
from dashboard.formats import count, date_and_clock, nanoseconds, seconds
from dashboard.frames.block_grid import UNKNOWN_OWNER, ages
from kvpulse.events import BlockState

if TYPE_CHECKING:
    from agent.block_map import BlockMap

OWNERS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class BlockDetail:
    """One block's facts, name and value (None: not known), and its owners."""

    facts: list[tuple[str, str | None]]
    owners: list[int]


def detail_of(blocks: "BlockMap", block: int) -> BlockDetail:
    """Return what a map tells of one block."""
    state = int(blocks.state[block])
    name = BlockState(state).name.lower() if state <= BlockState.ACTIVE else "unknown"
    age = float(ages(blocks)[block])
    owners = [owner for owner in blocks.owners_of(block) if owner > 0]
    filled = int(blocks.filled[block])
    facts: list[tuple[str, str | None]] = [
        ("State", name),
        ("Reference count", str(int(blocks.count[block]))),
        ("Unchanged for", seconds(age) if np.isfinite(age) else None),
        ("Since", date_and_clock(int(blocks.since_ns[block])) if np.isfinite(age) else None),
        ("Content identity", "known" if blocks.hash_known[block] else "none"),
    ]
    if state == BlockState.ACTIVE:
        unknown = int(blocks.owner[block]) == UNKNOWN_OWNER
        facts += [
            ("Owners", owner_words(owners, unknown=unknown, since_gap=not blocks.exact)),
            ("Tenant", tenant_words(blocks, block, unknown=unknown)),
            ("Filled", f"{filled} of {blocks.block_size} slots" if filled >= 0 else None),
        ]
    return BlockDetail(facts, owners[:OWNERS_SHOWN])


def owner_words(owners: list[int], *, unknown: bool, since_gap: bool) -> str | None:
    """Name the owners, or say that they are not known."""
    if not owners and unknown:
        again = "known again at the next keyframe"
        return f"unknown since a gap; {again}" if since_gap else "unknown: it ended in a gap"
    if not owners:
        return None
    more = len(owners) - OWNERS_SHOWN
    text = ", ".join(str(owner) for owner in owners[:OWNERS_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def tenant_words(blocks: "BlockMap", block: int, *, unknown: bool) -> str | None:
    """Name the first owner's tenant."""
    if unknown:
        return None
    name: str = blocks.tenants.get(int(blocks.tenant[block]), "none")
    return name


def choices(blocks: "BlockMap") -> dict[int, str]:
    """Return the sequences that hold blocks, with a label each, the newest first."""
    # Of a sequence's blocks the last is the least likely to be another's shared prefix.
    owners, last = np.unique(blocks.ref_owner[::-1], return_index=True)
    tenants = blocks.tenant[blocks.ref_block[::-1][last]]
    labels = {}
    for owner, tenant in zip(owners[::-1].tolist(), tenants[::-1].tolist(), strict=True):
        name = blocks.tenants.get(tenant)
        labels[int(owner)] = f"sequence {owner}" + (f" · {name}" if name else "")
    return labels


def moment_words(blocks: "BlockMap") -> str:
    """Say which moment the map shows, and how exact that is."""
    text = f"{count(blocks.total_blocks)} blocks of {blocks.block_size} tokens"
    if blocks.num_out_of_service:
        text += f", {count(blocks.num_out_of_service)} of the free cells out of service"
    text += f" as of {date_and_clock(blocks.at_ns)}"
    if blocks.age_ns > 0:
        return text + (
            f" · the nearest stored snapshot, {nanoseconds(blocks.age_ns)} older than asked for: "
            "the detail of that time is no longer stored"
        )
    if not blocks.exact:
        return text + " · after a gap: owners are unknown until the next keyframe"
    return text + " · exact"


def leak_words(leaks: Sequence[Leak]) -> str:
    """Name the leaked blocks, per owner."""
    # Several ended sequences may have held the same block: it is one leaked block.
    blocks = {leak.block for leak in leaks}
    by_owner: dict[int, list[int]] = {}
    for leak in leaks:
        by_owner.setdefault(leak.owner, []).append(leak.block)
    parts = [
        f"{leaker_words(owner)}: {block_words(sorted(by_owner[owner]))}"
        for owner in sorted(by_owner)[:OWNERS_SHOWN]
    ]
    more = len(by_owner) - OWNERS_SHOWN
    rest = f"; and of {more} more sequences" if more > 0 else ""
    noun = "block" if len(blocks) == 1 else "blocks"
    return f"{count(len(blocks))} {noun} outlived their owner. Of {'; of '.join(parts)}{rest}."


def block_words(blocks: Sequence[int]) -> str:
    """Write block numbers with runs drawn together: `blocks 40-45, 51`."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:12]]
    noun = "block" if len(blocks) == 1 else "blocks"
    return f"{noun} {', '.join(shown)}{' …' if len(runs) > 12 else ''}"
