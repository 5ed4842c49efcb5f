"""Hold the ledger against what the engine says of itself: its `pool` records and its keyframes.

The pool counts these numbers on its own and not through the Recorder, so that equality means that
every event arrived and was understood.
"""

from typing import Final, NamedTuple

import numpy as np

from agent.ledger.block_ledger import BlockEffects, BlockLedger
from agent.ledger.delta import LawFailure, Named
from agent.ledger.event_columns import EventColumns
from kvpulse.events import HOST_TIER, NOT_MEASURED, Kind, PoolWord
from kvpulse.keyframe import NULL_ENTRY
from kvpulse.keyframe_decoder import KeyframeArrays

MAX_NAMED: Final = 5
MOST_BLOCKS: Final = 1 << 24  # of one tier


class PoolAccount(NamedTuple):
    """The pool's own account of itself at one record."""

    record: int
    t_ns: int
    host: bool
    total: int
    active: int
    cached: int
    free: int
    sum_counts: int
    checksum: int
    filled_slots: int | None
    largest_free_run: int | None
    allocate_ns: int | None  # one call's, sampled since the account before

    @property
    def adds_up(self) -> bool:
        """Whether it agrees with itself: a damaged total must not make a ledger of 2**32 blocks."""
        return self.total == self.active + self.cached + self.free <= MOST_BLOCKS


def pool_accounts(events: EventColumns) -> list[PoolAccount]:
    """Return the accounts that a stretch of events states, in order."""
    accounts = []
    for record in np.flatnonzero(events.is_kind(Kind.POOL)).tolist():
        words = events.words(record)
        if len(words) < len(PoolWord):
            continue
        filled, run = words[PoolWord.FILLED_SLOTS], words[PoolWord.LARGEST_FREE_RUN]
        accounts.append(
            PoolAccount(
                record,
                int(events.t_ns[record]),
                bool(events.flags[record] & HOST_TIER),
                words[PoolWord.TOTAL],
                words[PoolWord.ACTIVE],
                words[PoolWord.CACHED],
                words[PoolWord.FREE],
                words[PoolWord.SUM_LOW] | words[PoolWord.SUM_HIGH] << 32,
                words[PoolWord.CHECKSUM_LOW] | words[PoolWord.CHECKSUM_HIGH] << 32,
                None if filled == NOT_MEASURED else filled,
                None if run == NOT_MEASURED else run,
                int(events.aux[record]) - 1 if events.aux[record] else None,
            )
        )
    return accounts


def audit_name(account: PoolAccount) -> str:
    """Return the name under which an account's audit fails."""
    return "audit_host" if account.host else "audit"


def audit(account: PoolAccount, effects: BlockEffects) -> LawFailure | None:
    """Compare one account with the ledger at that record."""
    record = account.record
    active, cached = int(effects.active_after[record]), int(effects.cached_after[record])
    mine = (
        ("active", account.active, active),
        ("cached", account.cached, cached),
        ("free", account.free, account.total - active - cached),
        ("sum of counts", account.sum_counts, int(effects.sum_after[record])),
        ("checksum", account.checksum, effects.checksum_after(record)),
    )
    wrong = [f"{name}: pool {its}, ledger {ours}" for name, its, ours in mine if its != ours]
    if not wrong:
        return None
    return LawFailure(
        audit_name(account),
        "; ".join(wrong),
        account.t_ns,
        ", ".join(f"{name} {its}" for name, its, ours in mine if its != ours),
        ", ".join(f"{name} {ours}" for name, its, ours in mine if its != ours),
    )


def compare_keyframe(
    keyframe: KeyframeArrays, blocks: BlockLedger, held: dict[int, int], t_ns: int
) -> LawFailure | None:
    """Compare a keyframe that no gap precedes with the ledger.

    Args:
        held: How many references each live sequence holds.
    """
    counts = np.zeros(len(blocks.count), np.int64)
    size = min(len(counts), len(keyframe.counts))
    counts[:size] = keyframe.counts[:size]
    wrong = []
    other_count = np.flatnonzero(counts != blocks.count)
    if len(other_count):
        wrong.append(f"counts of blocks {_named(other_count)}")
    cached = np.zeros(len(blocks.count), bool)
    cached[keyframe.cached_blocks[keyframe.cached_blocks < len(cached)]] = True
    other_state = np.flatnonzero(cached != (blocks.state == 1))
    if len(other_state):
        wrong.append(f"cached or free of blocks {_named(other_state)}")
    stated = _references(keyframe)
    differing_owners = np.zeros(0, np.int64)
    if stated != held:
        differ = [n for n in sorted(stated.keys() | held.keys()) if stated.get(n) != held.get(n)]
        wrong.append(f"what sequences {_named(np.array(differ))} hold")
        differing_owners = np.array(differ, np.int64)
    if not wrong:
        return None
    return LawFailure(
        "audit_keyframe",
        "keyframe and ledger differ in " + ", ".join(wrong),
        t_ns,
        "what the keyframe states",
        "other " + ", ".join(wrong),
        Named.of(np.union1d(other_count, other_state), differing_owners),
    )


def _references(keyframe: KeyframeArrays) -> dict[int, int]:
    entries = keyframe.sequences["table_entries"].astype(np.int64)
    which = np.repeat(np.arange(len(entries)), entries)
    held = np.bincount(which, weights=keyframe.tables != NULL_ENTRY, minlength=len(entries))
    return dict(zip(keyframe.sequences["owner"].tolist(), held.astype(int).tolist(), strict=True))


def _named(ids: "np.typing.NDArray[np.int64]") -> str:
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return ", ".join(map(str, ids[:MAX_NAMED].tolist())) + more
