"""The map of all blocks at one moment: encoded in snapshots, and rebuilt for any time after one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.chunks.chunk import Stretch, decode_chunk
from agent.errors import ChunkError, StateError
from agent.ledger.audit import pool_accounts
from agent.ledger.block_ledger import (
    STATE_KINDS,
    BlockLedger,
    clearing_records,
    follow_content,
    outcomes_of,
)
from agent.ledger.event_columns import (
    OUTCOME_MASK,
    Bools,
    Bytes,
    EventColumns,
    Ints,
    columns_of,
    unroll,
)
from agent.ledger.owner_ledger import OwnerLedger
from agent.ledger.reference_ledger import ReferenceLedger
from agent.ledger.state_frame import decode_frame, encode_frame
from kvpulse.events import HOST_TIER, UNKNOWN_OWNER, BlockState, FreeOutcome, Kind

UNKNOWN: Final = -1
SPARSE_RATIO: Final = 4  # of the span of owners' numbers to their moves: sorting is cheaper then
MOST_BLOCKS: Final = 1 << 24  # of a pool; a chunk that claims more is not believed
_ARRAYS: Final = ("state", "count", "since_ns", "tenant", "hash_known", "ref_owner", "ref_block")


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Every block at one moment. Times are engine ns here; reads turn them into wall time."""

    at_ns: int
    total_blocks: int  # in service; there are more cells after a pool shrank
    block_size: int
    state: Bytes  # kvpulse.events.BlockState
    count: npt.NDArray[np.int32]
    owner: Ints  # its first holder; 0 nobody, -1 unknown
    tenant: npt.NDArray[np.int32]  # of the sequence that made it active last
    since_ns: Ints  # last change of count or state; 0: before what was read
    hash_known: Bools  # its content has an identity: it may be hit
    filled: npt.NDArray[np.int32]  # filled slots: all where the content has a hash; -1 unknown
    ref_owner: Ints  # all references, in table order per owner
    ref_block: Ints
    exact: bool = True  # False: owners are not known (after a gap), or the map is older than asked
    age_ns: int = 0  # how much older than the time asked for
    tenants: Mapping[int, str] = field(default_factory=dict)

    def owners_of(self, block: int) -> list[int]:
        """Return who holds a block, in the order of taking."""
        owners: list[int] = self.ref_owner[self.ref_block == block].tolist()
        return owners

    def blocks_of(self, owner: int) -> list[int]:
        """Return a sequence's blocks in table order."""
        blocks: list[int] = self.ref_block[self.ref_owner == owner].tolist()
        return blocks

    @property
    def num_out_of_service(self) -> int:
        """Free cells that the pool has withdrawn; which of them is not stated."""
        return len(self.state) - self.total_blocks

    @property
    def owners(self) -> list[list[int]]:
        """Who holds each block."""
        lists: list[list[int]] = [[] for _ in range(len(self.state))]
        for owner, block in zip(self.ref_owner.tolist(), self.ref_block.tolist(), strict=True):
            lists[block].append(owner)
        return lists


def encode_map(
    blocks: BlockLedger, owners: OwnerLedger, *, t_ns: int, block_size: int, exact: bool
) -> bytes:
    """Return the state of one tier as a blob; `owners` is settled."""
    references = owners.references
    values = {"t_ns": t_ns, "total": blocks.total, "block_size": block_size, "exact": exact}
    arrays: dict[str, npt.NDArray[Any]] = {
        "state": blocks.state,
        "count": blocks.count.astype(np.uint32),
        "since_ns": np.where(blocks.since_ns > 0, t_ns - blocks.since_ns, -1),
        "tenant": blocks.tenant.astype(np.uint16),
        "hash_known": blocks.hash_known,
        "ref_owner": owners.owner[references.slot].astype(np.uint32),
        "ref_block": references.block.astype(np.uint32),
    }
    return encode_frame(values, arrays)


@dataclass(frozen=True, slots=True)
class StoredMap:
    """A snapshot's map, read back."""

    t_ns: int
    total: int
    block_size: int
    exact: bool
    state: Bytes
    count: Ints
    since_ns: Ints
    tenant: Ints
    hash_known: Bools
    ref_owner: Ints
    ref_block: Ints


def decode_map(blob: bytes) -> StoredMap:
    """Read `encode_map`'s blob.

    Raises:
        StateError: It is damaged or of another version.
    """
    values, arrays = decode_frame(blob)
    try:
        columns = {name: arrays[name] for name in _ARRAYS}
        t_ns, total, block_size = (int(values[name]) for name in ("t_ns", "total", "block_size"))
        exact = bool(values["exact"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"a stored block map lacks {error}") from error
    per_block = {len(columns[name]) for name in _ARRAYS[:5]}
    beyond = int(columns["ref_block"].max(initial=0)) >= max(per_block, default=0)
    if len(per_block) != 1 or (beyond and len(columns["ref_block"])):
        raise StateError("a stored block map's columns differ in length")
    age = columns.pop("since_ns")
    wide = {n: columns[n].astype(np.int64) for n in ("count", "tenant", "ref_owner", "ref_block")}
    return StoredMap(
        t_ns,
        total,
        block_size,
        exact,
        state=columns["state"],
        hash_known=columns["hash_known"],
        since_ns=np.where(age >= 0, t_ns - age, 0),
        **wide,
    )


class MapReplay:
    """Follows a snapshot's map through later events: no totals, no laws, only the blocks."""

    def __init__(self, stored: StoredMap) -> None:
        self.stored = stored
        self.t_ns, self._total = stored.t_ns, stored.total
        self._state, self._count = stored.state.copy(), stored.count.copy()
        self._since, self._tenant = stored.since_ns.copy(), stored.tenant.copy()
        self._known = stored.hash_known.copy()
        self._owner: list[Ints] = [stored.ref_owner]
        self._block: list[Ints] = [stored.ref_block]
        self._drops: list[Bools] = [np.zeros(len(stored.ref_block), bool)]

    def apply(self, stretch: Stretch, *, until_ns: int) -> None:
        """Follow the records of a stretch up to and including a time."""
        events = columns_of(
            stretch.records, stretch.lane, stretch.lane_base, not_before_ns=self.t_ns
        )
        upto = int(np.searchsorted(events.t_ns, until_ns, "right"))
        if not upto:
            return
        self.t_ns = int(events.t_ns[upto - 1])
        for account in pool_accounts(events):
            if account.record < upto and account.adds_up and not account.host:
                self._resize(account.total)
        picked = _picked(events, upto)
        rows = unroll(events, picked, len(self._count))
        outcomes = outcomes_of(events)
        block, record = rows.block, rows.record
        # Of several assignments to one block the last wins, and rows are in event order.
        self._count[block] = outcomes.counts[record]
        self._state[block] = outcomes.state[record]
        self._since[block] = events.t_ns[record]
        starts = (outcomes.sign[record] > 0) & (outcomes.counts[record] == 1)
        self._tenant[block[starts]] = events.tenant[record[starts]]
        clearing = clearing_records(events)[record]
        clears = clearing >= 0
        last_clear = np.full(len(self._known), -1, np.int64)
        last_clear[block[clears]] = clearing[clears]
        follow_content(events, last_clear, self._known, host=False, until=upto)
        moves = outcomes.sign[record] != 0
        self._owner.append(events.owner[record[moves]].astype(np.int64))
        self._block.append(block[moves])
        self._drops.append(outcomes.sign[record[moves]] < 0)

    def _resize(self, total: int) -> None:
        """Follow a pool that states another size; which blocks left service is not stated."""
        if total > MOST_BLOCKS:
            raise ChunkError(f"a chunk states a pool of {total} blocks, more than {MOST_BLOCKS}")
        self._total = total
        extra = total - len(self._count)
        if extra > 0:
            for name in ("_state", "_count", "_since", "_tenant", "_known"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros(extra, column.dtype)]))

    def result(self, *, at_ns: int) -> BlockMap:
        """Return the map as it stands; `at_ns` is the time that was asked for."""
        ref_owner, ref_block = self._references()
        owner = np.where(self._count > 0, UNKNOWN, 0)
        owner[ref_block[::-1]] = ref_owner[::-1]
        return BlockMap(
            at_ns=at_ns,
            total_blocks=self._total,
            block_size=self.stored.block_size,
            state=self._state,
            count=self._count.astype(np.int32),
            owner=owner,
            tenant=self._tenant.astype(np.int32),
            since_ns=self._since,
            hash_known=self._known,
            filled=self._filled(),
            ref_owner=ref_owner,
            ref_block=ref_block,
            exact=self.stored.exact,
        )

    def _filled(self) -> npt.NDArray[np.int32]:
        """Return filled slots: only full blocks get a hash; of the others nothing is known."""
        known = np.where(self._known, self.stored.block_size, UNKNOWN)
        return np.where(self._state == BlockState.FREE, 0, known).astype(np.int32)

    def _references(self) -> tuple[Ints, Ints]:
        """Return the references still held, with the ledger's own way of matching them."""
        owner, block = np.concatenate(self._owner), np.concatenate(self._block)
        drops = np.concatenate(self._drops)
        owners, slot = _numbered(owner)
        held = np.bincount(slot, weights=np.where(drops, -1, 1), minlength=len(owners))
        references = ReferenceLedger()
        references.append(slot.astype(np.int32), block.astype(np.int32), drops)
        references.settle(held.astype(np.int64))
        holder, held_block = owners[references.slot], references.block.astype(np.int64)
        seen = holder != UNKNOWN_OWNER  # what a gap left over is active without a holder here
        return holder[seen], held_block[seen]


def replay_map(map_blob: bytes, chunks: Iterable[bytes], *, at_ns: int) -> BlockMap:
    """Rebuild the map at an engine time from a snapshot and the chunks after it, in order.

    Raises:
        StateError: The snapshot is damaged.
        ChunkError: A chunk is damaged.
    """
    replay = MapReplay(decode_map(map_blob))
    for blob in chunks:
        replay.apply(decode_chunk(blob), until_ns=at_ns)
    return replay.result(at_ns=at_ns)


def _numbered(owner: Ints) -> tuple[Ints, Ints]:
    """Return the different owners, and the place of each row's owner among them."""
    low, high = (int(owner.min()), int(owner.max())) if len(owner) else (0, 0)
    if high - low > SPARSE_RATIO * len(owner):
        owners, place = np.unique(owner, return_inverse=True)
        return owners, place
    # Sequences are numbered as they come: counting them costs a fifth of sorting their moves.
    seen = np.zeros(high - low + 1, bool)
    seen[owner - low] = True
    owners = np.flatnonzero(seen) + low
    return owners, (np.cumsum(seen) - 1)[owner - low]


def _picked(events: EventColumns, upto: int) -> Ints:
    wanted = STATE_KINDS[events.kind] & (events.flags & HOST_TIER == 0)
    refused = events.flags & OUTCOME_MASK == FreeOutcome.REFUSED
    wanted &= ~(refused & (events.kind == Kind.FREE))
    wanted[upto:] = False
    return np.flatnonzero(wanted)
