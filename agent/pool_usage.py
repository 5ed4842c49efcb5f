"""How full a pool is, in blocks and in token slots, and what of the difference is tail waste."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from kvpulse.events import UNKNOWN_OWNER


class LeakedBlock(Protocol):
    """A leak, live or stored."""

    @property
    def block(self) -> int:
        """Return the block."""

    @property
    def owner(self) -> int:
        """Return the sequence that ended; `UNKNOWN_OWNER` where nobody saw it."""

    @property
    def since_ns(self) -> int:
        """Return when it ended."""


MOST_NAMED: Final = 10


def leaker_words(owner: int) -> str:
    """Name the holder of a leaked block."""
    return "an owner unknown, before a gap" if owner == UNKNOWN_OWNER else f"sequence {owner}"


def known_owner(owner: int) -> int | None:
    """Return a holder as documents state it: None where it is not known."""
    return None if owner == UNKNOWN_OWNER else owner


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """A pool at one moment. Ratios are None where nobody measured what they need."""

    block_size: int
    total_blocks: int
    active_blocks: int
    cached_blocks: int
    free_blocks: int
    logical_blocks: int | None  # references; above the active blocks by what is shared
    filled_slots: int | None  # of active blocks, each once
    filled_of_blocks: int | None  # active blocks at the moment when that was counted
    at_least: bool = False  # no engine counted: prompts of running sequences alone

    @property
    def block_ratio(self) -> float | None:
        """Return active / all blocks."""
        return self.active_blocks / self.total_blocks if self.total_blocks else None

    @property
    def slot_ratio(self) -> float | None:
        """Return filled / all token slots."""
        slots = self.total_blocks * self.block_size
        return None if self.filled_slots is None or not slots else self.filled_slots / slots

    @property
    def waste_ratio(self) -> float | None:
        """Return empty / all slots of the active blocks; None where no block is active."""
        return waste_ratio(self.filled_slots, self.filled_of_blocks, self.block_size)

    @property
    def shared_blocks(self) -> int | None:
        """Return how many blocks more there would have to be if nothing were shared."""
        return None if self.logical_blocks is None else self.logical_blocks - self.active_blocks


def waste_ratio(filled_slots: int | None, of_blocks: int | None, block_size: int) -> float | None:
    """Return which share of some blocks' slots is empty; None if unknown or there are no blocks."""
    if filled_slots is None or not of_blocks:
        return None
    return 1 - filled_slots / (of_blocks * block_size)


@dataclass(frozen=True, slots=True)
class LeakedOwner:
    """A sequence that ended and whose references were never released."""

    owner: int
    num_blocks: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class LeakReport:
    """Blocks that nothing will give back, and blocks that look used and are not."""

    owners: tuple[LeakedOwner, ...]
    num_blocks: int  # leaked, each once
    cached_blocks: int | None  # count 0, content kept: reclaimable, never a leak

    @property
    def sentence(self) -> str:
        """Return the finding in words, naming the first owners."""
        if not self.owners:
            return f"nothing leaked; cached, reclaimable {self.cached_blocks or 0}"
        blocks = "1 block" if self.num_blocks == 1 else f"{self.num_blocks} blocks"
        return f"references never released: {blocks} of {self._owners_in_words}"

    @property
    def _owners_in_words(self) -> str:
        seen = [each for each in self.owners if each.owner != UNKNOWN_OWNER]
        names = ", ".join(str(each.owner) for each in seen[:MOST_NAMED])
        more = len(seen) - MOST_NAMED
        parts = [f"ended sequences {names}" + (f" and {more} more" if more > 0 else "")]
        unseen = [leaker_words(UNKNOWN_OWNER)] * (len(seen) < len(self.owners))
        return " and of ".join(parts * bool(seen) + unseen)


def leak_report(leaks: Iterable[LeakedBlock], *, cached_blocks: int | None) -> LeakReport:
    """Sum open leaks up by owner, the largest first."""
    blocks_of: dict[int, set[int]] = {}
    since: dict[int, int] = {}
    for leak in leaks:
        blocks_of.setdefault(leak.owner, set()).add(leak.block)
        since[leak.owner] = min(leak.since_ns, since.get(leak.owner, leak.since_ns))
    owners = [LeakedOwner(owner, len(ids), since[owner]) for owner, ids in blocks_of.items()]
    owners.sort(key=lambda each: (-each.num_blocks, each.owner))
    return LeakReport(tuple(owners), len(set().union(*blocks_of.values())), cached_blocks)
