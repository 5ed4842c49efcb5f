"""Writes records: the three ways a public method hands an event over.

The invariant: lane words first, then the record, then the commit word, so that whatever a reader
sees below the commit word is whole.

The fast way asks nothing beforehand. The views of both lanes end where the segment does, and are
empty while recording is paused, so a record that has no room fails to pack and takes the slow way:
make room and try again; a second failure is the values' fault. What never changes between two
rotations comes out of one tuple, because seven loads cost more than one.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kvpulse.events import FORMS, MAX_KINDS, Kind
from kvpulse.stream_rotation import StreamRotation
from kvpulse.stream_state import PACK

_BLOCK_KINDS: Final = frozenset(int(kind) for kind in Kind if FORMS[kind].counts_blocks)
# By kind code: a record counts `n` events, else one.
COUNTS_BLOCKS: Final = tuple(code in _BLOCK_KINDS for code in range(MAX_KINDS))

Words = tuple[int, ...]


class RecordWriter(StreamRotation):
    """One stream's writing end. Belongs to one thread at a time."""

    __slots__ = ()

    def _emit(
        self, kind: int, flags: int, tenant: int, owner: int, first: int, n: int, aux: int
    ) -> None:
        """Write a record without lane words that counts one event."""
        records, clock, base, emitted, commit, _ = self._hot
        at = self._index
        try:
            PACK(records, at << 5, clock(), base + at, kind, flags, tenant, owner, first, n, aux)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._emit_slowly(kind, flags, tenant, owner, first, n, aux)
        emitted[kind] += 1
        # The index before the commit word: a Ctrl-C between the two must not let the next record
        # overwrite one that a reader already sees.
        self._index = at = at + 1
        commit[0] = at
        return None

    def _emit_ids(
        self, kind: int, flags: int, tenant: int, owner: int, ids: Sequence[int], aux: int
    ) -> None:
        """Write a record of block ids; a single one stands in the record itself."""
        records, clock, base, emitted, commit, _ = self._hot
        at = self._index
        try:
            if len(ids) != 1:
                return self._emit_several(kind, flags, tenant, owner, ids, aux)
            first = ids[0]
            PACK(records, at << 5, clock(), base + at, kind, flags, tenant, owner, first, 1, aux)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._emit_several(kind, flags, tenant, owner, ids, aux)
        emitted[kind] += 1
        self._index = at = at + 1
        commit[0] = at
        return None

    def _emit_several(
        self, kind: int, flags: int, tenant: int, owner: int, ids: Sequence[int], aux: int
    ) -> None:
        """Write ids to the lane; those that would fill much of it go into several records."""
        try:
            words = array("I", ids)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, length_of(ids))
        n = len(words)
        if 1 < n <= self._piece:
            return self._emit_lane(kind, flags, tenant, owner, words, n, aux)
        for start in range(0, n, self._piece):
            part = words[start : start + self._piece]
            if len(part) == 1:
                self._emit_slowly(kind, flags, tenant, owner, part[0], 1, aux)
            else:
                self._emit_lane(kind, flags, tenant, owner, part, len(part), aux)
        return None

    def _emit_lane(
        self, kind: int, flags: int, tenant: int, owner: int, words: "array[int]", n: int, aux: int
    ) -> None:
        """Write a record whose payload is in the lane, whatever its length."""
        records, clock, base, emitted, commit, lane = self._hot
        at = self._index
        first = self._word
        end = first + len(words)
        try:
            lane[first:end] = words
            PACK(records, at << 5, clock(), base + at, kind, flags, tenant, owner, first, n, aux)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._emit_lane_slowly(kind, flags, tenant, owner, words, n, aux)
        emitted[kind] += n if COUNTS_BLOCKS[kind] else 1
        self._word = end
        self._index = at = at + 1
        commit[0] = at
        return None

    def _emit_words(
        self, kind: int, flags: int, tenant: int, owner: int, aux: int, form: Struct, values: Words
    ) -> None:
        """Write a record of two or more payload words, packed as `form` says."""
        try:
            words = array("I", form.pack(*values))
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, 1)
        return self._emit_lane(kind, flags, tenant, owner, words, len(words), aux)

    def _emit_pairs(self, kind: int, tenant: int, owner: int, pairs: Sequence[int]) -> None:
        """Write pairs: source and target in turn."""
        try:
            packed = array("I", pairs)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            return self._refuse(kind, max(1, length_of(pairs) // 2))
        piece = self._piece & ~1
        for start in range(0, len(packed) & ~1, piece):
            part = packed[start : start + piece]
            self._emit_lane(kind, 0, tenant, owner, part, len(part) // 2, 0)
        return None

    def _emit_text(self, kind: int, flags: int, tenant: int, text: bytes) -> None:
        """Write a text, padded with zeros to whole words; `aux` is its length."""
        words = array("I", text + bytes(-len(text) % 4))
        self._emit_lane(kind, flags, tenant, 0, words, len(words), len(text))

    def _emit_slowly(
        self, kind: int, flags: int, tenant: int, owner: int, first: int, n: int, aux: int
    ) -> None:
        """Make room for a record without lane words and try once more."""
        if self._make_room(0):
            self._pack_or_refuse(kind, flags, tenant, owner, first, n, aux, 1)
        else:
            self._lose(kind, 1)

    def _pack_or_refuse(
        self,
        kind: int,
        flags: int,
        tenant: int,
        owner: int,
        first: int,
        n: int,
        aux: int,
        events: int,
    ) -> bool:
        """Write a record into room that is there; False when its values do not fit."""
        records, clock, base, emitted, commit, _ = self._hot
        at = self._index
        try:
            PACK(records, at << 5, clock(), base + at, kind, flags, tenant, owner, first, n, aux)
        except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
            self._refuse(kind, events)
            return False
        emitted[kind] += events
        self._index = at = at + 1
        commit[0] = at
        return True

    def _emit_lane_slowly(
        self, kind: int, flags: int, tenant: int, owner: int, words: "array[int]", n: int, aux: int
    ) -> None:
        """Make room for record and words, and try once more."""
        events = n if COUNTS_BLOCKS[kind] else 1
        if not self._make_room(len(words)):
            return self._lose(kind, events)
        first = self._word
        end = first + len(words)
        self._hot[5][first:end] = words
        if self._pack_or_refuse(kind, flags, tenant, owner, first, n, aux, events):
            self._word = end
        return None


def length_of(ids: Sequence[int]) -> int:
    """Return how many events to count for something that could not be written."""
    try:
        return len(ids)
    except Exception:  # noqa: BLE001 - the engine must survive whatever it handed us
        return 1
