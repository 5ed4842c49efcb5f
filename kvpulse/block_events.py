"""What the pool states: one method for each kind that is about blocks.

`ids` is any sequence of block numbers; a list is fastest. `host` says that they are host blocks.
`tenant` is an id that `Recorder.tenant` gave out, 0 for none.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kvpulse.events import HOST_TIER, Kind
from kvpulse.record_writer import RecordWriter, length_of
from kvpulse.stream_state import PACK

ALLOCATE: Final = int(Kind.ALLOCATE)
SHARE: Final = int(Kind.SHARE)
FREE: Final = int(Kind.FREE)
COPY_ON_WRITE: Final = int(Kind.COPY_ON_WRITE)
CACHE: Final = int(Kind.CACHE)
EVICT: Final = int(Kind.EVICT)
SWAP_OUT: Final = int(Kind.SWAP_OUT)
SWAP_IN: Final = int(Kind.SWAP_IN)
ALLOCATE_FAILED: Final = int(Kind.ALLOCATE_FAILED)
HOLD: Final = int(Kind.HOLD)
FAIL: Final = Struct("<III")  # `FailWord`


class BlockEvents(RecordWriter):
    """The block half of `Recorder`."""

    __slots__ = ()

    def allocate(self, owner: int, ids: Sequence[int], tenant: int = 0, host: bool = False) -> None:
        """State that `owner` took `ids` out of the free blocks; each has count 1 now.

        A cached block that is taken for new data is stated by `evict` first.
        """
        try:
            flags = HOST_TIER if host else 0
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(ALLOCATE, length_of(ids))
        # `_emit_ids` written out: for one block the call would cost a tenth of the whole.
        records, clock, base, emitted, commit, _ = self._hot
        at = self._index
        try:
            if len(ids) != 1:
                return self._emit_several(ALLOCATE, flags, tenant, owner, ids, 1)
            first = ids[0]
            PACK(records, at << 5, clock(), base + at, ALLOCATE, flags, tenant, owner, first, 1, 1)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._emit_several(ALLOCATE, flags, tenant, owner, ids, 1)
        emitted[ALLOCATE] += 1
        self._index = at = at + 1
        commit[0] = at
        return None

    def share(
        self, owner: int, ids: Sequence[int], count: int, tenant: int = 0, host: bool = False
    ) -> None:
        """State that `owner` took one more reference to each of `ids`; each has `count` now.

        Count 1 means that the block was cached. One call for each run of equal resulting count,
        in table order.
        """
        try:
            flags = HOST_TIER if host else 0
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(SHARE, length_of(ids))
        return self._emit_ids(SHARE, flags, tenant, owner, ids, count)

    def free(
        self,
        owner: int,
        ids: Sequence[int],
        count: int,
        outcome: int,
        tenant: int = 0,
        host: bool = False,
    ) -> None:
        """State that `owner` dropped one reference to each of `ids`; each has `count` left.

        One call for each run of equal count and `FreeOutcome`. A refused double free changes
        nothing and states the present count.
        """
        try:
            flags = outcome | HOST_TIER if host else outcome
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(FREE, length_of(ids))
        # `_emit_ids` written out: for one block the call would cost a tenth of the whole.
        records, clock, base, emitted, commit, _ = self._hot
        at = self._index
        try:
            if len(ids) != 1:
                return self._emit_several(FREE, flags, tenant, owner, ids, count)
            first = ids[0]
            PACK(records, at << 5, clock(), base + at, FREE, flags, tenant, owner, first, 1, count)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._emit_several(FREE, flags, tenant, owner, ids, count)
        emitted[FREE] += 1
        self._index = at = at + 1
        commit[0] = at
        return None

    def copy_on_write(self, owner: int, pairs: Sequence[int], tenant: int = 0) -> None:
        """State copies [source, target, …]; allocate and free are calls of their own."""
        self._emit_pairs(COPY_ON_WRITE, tenant, owner, pairs)

    def cache(self, owner: int, ids: Sequence[int], hashes: Sequence[int], tenant: int = 0) -> None:
        """State the content identity of `ids`: one keyed 64-bit hash each, see `KeyedHashes`."""
        try:
            if len(ids) == 1:  # what each sequence states once per filled block
                (content,) = hashes
                only = array("I", (ids[0], content & 0xFFFF_FFFF, content >> 32))
                return self._emit_lane(CACHE, 0, tenant, owner, only, 1, 0)
            piece = self._piece // 3
            parts = [
                (ids[at : at + piece], hashes[at : at + piece]) for at in range(0, len(ids), piece)
            ]
            packed = []
            for some_ids, some_hashes in parts:
                words = array("I", some_ids)
                words.frombytes(array("Q", some_hashes).tobytes())
                if len(words) != 3 * len(some_ids):
                    raise ValueError("as many hashes as ids")
                packed.append(words)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(CACHE, length_of(ids))
        for words in packed:
            self._emit_lane(CACHE, 0, tenant, owner, words, len(words) // 3, 0)
        return None

    def evict(self, ids: Sequence[int], reason: int = 1, owner: int = 0, tenant: int = 0) -> None:
        """State that cached blocks lost their content, for `owner` if for anybody."""
        self._emit_ids(EVICT, 0, tenant, owner, ids, reason)

    def swap_out(self, owner: int, pairs: Sequence[int], tenant: int = 0) -> None:
        """State copies out of the gpu: [gpu block, host block, …]."""
        self._emit_pairs(SWAP_OUT, tenant, owner, pairs)

    def swap_in(self, owner: int, pairs: Sequence[int], tenant: int = 0) -> None:
        """State copies into the gpu: [host block, gpu block, …]."""
        self._emit_pairs(SWAP_IN, tenant, owner, pairs)

    def allocate_failed(
        self, owner: int, needed: int, free: int, cached: int, cause: int, tenant: int = 0
    ) -> None:
        """State that `owner` could not get `needed` blocks, what there was, and the `WaitCause`."""
        self._emit_words(ALLOCATE_FAILED, 0, tenant, owner, cause, FAIL, (needed, free, cached))

    def hold(
        self, owner: int, ids: Sequence[int], reason: int, lease_ms: int, tenant: int = 0
    ) -> None:
        """State that `ids` stay active without a sequence for `lease_ms`; 0 releases them."""
        self._emit_ids(HOLD, reason, tenant, owner, ids, lease_ms)
