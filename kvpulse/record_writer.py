"""Writes records: the three ways a public method hands an event over.

The invariant: lane words first, then the record, then the commit word, so that whatever a reader
sees below the commit word is whole. The three bodies repeat each other because a call costs a tenth
of an event.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from kvpulse.events import FORMS, MAX_KINDS, Kind
from kvpulse.stream_state import PACK, SEQ_MASK, StreamState

_BLOCK_KINDS: Final = frozenset(int(kind) for kind in Kind if FORMS[kind].counts_blocks)
# By kind code: a record counts `n` events, else one.
COUNTS_BLOCKS: Final = tuple(code in _BLOCK_KINDS for code in range(MAX_KINDS))


class RecordWriter(StreamState):
    """One stream's writing end. Belongs to one thread at a time."""

    __slots__ = ()

    def _emit(
        self, kind: int, flags: int, tenant: int, owner: int, first: int, n: int, aux: int
    ) -> None:
        """Write a record without lane words that counts one event."""
        index = self._index
        if index >= self._limit:
            if not self._make_room(0):
                return self._lose(kind, 1)
            index = self._index
        try:
            PACK(
                self._map,
                4096 + index * 32,
                self._clock(),
                self._base + index & SEQ_MASK,
                kind,
                flags,
                tenant,
                owner,
                first,
                n,
                aux,
            )
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, 1)
        self._emitted[kind] += 1
        # The index before the commit word: a Ctrl-C between the two must not let the next record
        # overwrite one that a reader already sees.
        self._index = index = index + 1
        self._commit[0] = index
        return None

    def _emit_ids(
        self, kind: int, flags: int, tenant: int, owner: int, ids: Sequence[int], aux: int
    ) -> None:
        """Write a record of block ids; a single one stands in the record itself."""
        n = 1
        try:
            n = len(ids)
            index = self._index
            end = self._word
            if n == 1:
                if index >= self._limit:
                    if not self._make_room(0):
                        return self._lose(kind, 1)
                    index = self._index
                    end = self._word
                first = ids[0]
            else:
                first = end
                end += n
                if index >= self._limit or end > self._lane_limit:
                    return self._emit_ids_slowly(kind, flags, tenant, owner, ids, aux)
                self._lane[first:end] = array("I", ids)
            PACK(
                self._map,
                4096 + index * 32,
                self._clock(),
                self._base + index & SEQ_MASK,
                kind,
                flags,
                tenant,
                owner,
                first,
                n,
                aux,
            )
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, n)
        self._emitted[kind] += n
        self._word = end
        self._index = index = index + 1
        self._commit[0] = index
        return None

    def _emit_ids_slowly(
        self, kind: int, flags: int, tenant: int, owner: int, ids: Sequence[int], aux: int
    ) -> None:
        """Make room first; ids that fill more than a quarter of a lane go into several records."""
        n = len(ids)
        piece = self._reserver.shape.lane_capacity >> 2
        if n > piece:
            for start in range(0, n, piece):
                self._emit_ids(kind, flags, tenant, owner, ids[start : start + piece], aux)
        elif self._make_room(n):
            self._emit_ids(kind, flags, tenant, owner, ids, aux)
        else:
            self._lose(kind, n)

    def _emit_lane(
        self, kind: int, flags: int, tenant: int, owner: int, words: "array[int]", n: int, aux: int
    ) -> None:
        """Write a record whose payload is in the lane, whatever its length."""
        first = self._word
        end = first + len(words)
        index = self._index
        if index >= self._limit or end > self._lane_limit:
            if not self._make_room(len(words)):
                return self._lose(kind, n if COUNTS_BLOCKS[kind] else 1)
            first = self._word
            end = first + len(words)
            index = self._index
        try:
            self._lane[first:end] = words
            PACK(
                self._map,
                4096 + index * 32,
                self._clock(),
                self._base + index & SEQ_MASK,
                kind,
                flags,
                tenant,
                owner,
                first,
                n,
                aux,
            )
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, n if COUNTS_BLOCKS[kind] else 1)
        self._emitted[kind] += n if COUNTS_BLOCKS[kind] else 1
        self._word = end
        self._index = index = index + 1
        self._commit[0] = index
        return None

    def _emit_words(
        self, kind: int, flags: int, tenant: int, owner: int, aux: int, words: Sequence[int]
    ) -> None:
        """Write a record of two or more payload words."""
        try:
            packed = array("I", words)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, 1)
        return self._emit_lane(kind, flags, tenant, owner, packed, len(packed), aux)

    def _emit_pairs(
        self, kind: int, flags: int, tenant: int, owner: int, pairs: Sequence[int], width: int
    ) -> None:
        """Write `pairs`, source and target in turn; `width` words make one event."""
        n = 1
        try:
            n = len(pairs) // width
            if not n:
                return None
            packed = array("I", pairs)
            piece = (self._reserver.shape.lane_capacity >> 2) // width * width
            if len(packed) > piece:
                for start in range(0, len(packed), piece):
                    part = packed[start : start + piece]
                    self._emit_lane(kind, flags, tenant, owner, part, len(part) // width, 0)
                return None
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, n)
        return self._emit_lane(kind, flags, tenant, owner, packed, n, 0)

    def _emit_text(self, kind: int, flags: int, tenant: int, text: bytes) -> None:
        """Write a text, padded with zeros to whole words; `aux` is its length."""
        words = array("I", text + bytes(-len(text) % 4))
        self._emit_lane(kind, flags, tenant, 0, words, len(words), len(text))
