"""A stretch of records as contiguous columns: what the vectorised ledger works on."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvpulse.events import FORMS, FreeOutcome, Kind, LaneForm
from kvpulse.stream_values import COUNTS_BLOCKS, Records

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]


_ANY_WORD: Final = np.zeros(1, np.uint32)
OUTCOME_MASK: Final = 3
LONGEST_SILENCE_NS: Final = 1 << 55  # over a year: a longer one is a damaged time


def kind_table(kinds: Any) -> Bools:
    """Return a table that says for each byte whether it is one of `kinds`."""
    table = np.zeros(256, bool)
    table[[int(kind) for kind in kinds]] = True
    table.setflags(write=False)
    return table


# Words in the lane for each unit of n.
_WORDS_PER_N: Final = np.ones(256, np.int64)
_WORDS_PER_N[[k for k, form in FORMS.items() if form.lane is LaneForm.PAIRS]] = 2
_WORDS_PER_N[[k for k, form in FORMS.items() if form.lane is LaneForm.HASHED_IDS]] = 3
# n == 1 stands in `first` itself.
_INLINE: Final = kind_table(
    kind
    for kind, form in FORMS.items()
    if form.lane in (LaneForm.IDS, LaneForm.WORDS) and kind is not Kind.KEYFRAME
)


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Records by column, in order of time, and the lane words that they use."""

    t_ns: Ints  # never falls: a record that claims an earlier time gets its predecessor's
    kind: Bytes
    flags: Bytes
    tenant: npt.NDArray[np.uint16]
    owner: Words
    first: Ints
    n: Ints
    aux: Ints
    lane: Words
    lane_base: int

    def __len__(self) -> int:
        return len(self.kind)

    def words(self, index: int) -> list[int]:
        """Return one record's payload words."""
        n = int(self.n[index])
        if n == 1 and _INLINE[self.kind[index]]:
            return [int(self.first[index])]
        start = int(self.first[index]) - self.lane_base
        end = start + n * int(_WORDS_PER_N[self.kind[index]])
        words: list[int] = self.lane[start:end].tolist()
        return words

    def is_kind(self, kind: Kind) -> Bools:
        """Return which records are of a kind."""
        # numpy compares bytes with a plain int five times as fast as with an enum's member.
        of_kind: Bools = self.kind == int(kind)
        return of_kind

    def is_free(self, outcome: FreeOutcome) -> Bools:
        """Return which records free blocks with an outcome."""
        frees: Bools = self.is_kind(Kind.FREE) & (self.flags & OUTCOME_MASK == int(outcome))
        return frees

    def events_per_record(self) -> Ints:
        """Return how many events each record stands for."""
        return np.where(COUNTS_BLOCKS[self.kind], self.n, 1)


def columns_of(
    records: Records, lane: Words, lane_base: int, *, not_before_ns: int = 0
) -> EventColumns:
    """Split records into columns; `not_before_ns` is the newest time already seen."""
    t_ns = records["ts_ns"].astype(np.int64)
    if len(t_ns):
        t_ns[0] = max(int(t_ns[0]), not_before_ns)
        np.maximum.accumulate(t_ns, out=t_ns)
    return EventColumns(
        t_ns=t_ns,
        kind=np.ascontiguousarray(records["kind"]),
        flags=np.ascontiguousarray(records["flags"]),
        tenant=np.ascontiguousarray(records["tenant"]),
        owner=np.ascontiguousarray(records["owner"]),
        first=records["first"].astype(np.int64),
        n=records["n"].astype(np.int64),
        aux=records["aux"].astype(np.int64),
        lane=lane,
        lane_base=lane_base,
    )


def with_sound_times(records: Records, *, not_before_ns: int) -> Records:
    """Return the records with damaged times replaced, lest what follows counts as that late.

    A time is damaged when the next record's is earlier but not earlier than the one before: that
    next one is in order, so this is not; and when it follows a silence that no engine outlives.

    Args:
        not_before_ns: The newest time already seen; 0: none.
    """
    t_ns = records["ts_ns"].view(np.int64)  # damage may make it negative: earlier than all
    falls = t_ns[1:] < t_ns[:-1]
    if not (falls.any() or t_ns[-1] - not_before_ns > LONGEST_SILENCE_NS or t_ns[0] < 0):
        return records
    records = records.copy()
    t_ns = records["ts_ns"].view(np.int64)
    before = np.append(not_before_ns, t_ns[:-1])
    spikes = np.flatnonzero(falls & (t_ns[1:] >= before[:-1]))
    t_ns[spikes] = t_ns[spikes + 1]
    leaps = (before > 0) & (t_ns - before > LONGEST_SILENCE_NS)
    t_ns[leaps] = before[leaps]
    t_ns[0] = max(int(t_ns[0]), not_before_ns)
    np.maximum.accumulate(t_ns, out=t_ns)
    return records


def lane_words_of(kind: Bytes, n: Ints) -> Ints:
    """Return how many lane words each record uses."""
    return np.where(_INLINE[kind] & (n == 1), 0, n * _WORDS_PER_N[kind])


@dataclass(frozen=True, slots=True)
class Rows:
    """Block records unrolled: one row for each block id, in event order."""

    record: Ints  # index of the record that each row comes from
    block: npt.NDArray[np.int32]
    num_bad: int  # ids that the pool does not have, left out


def unroll(events: EventColumns, picked: Ints, num_blocks: int) -> Rows:
    """Return one row for each id of the `picked` IDS (or HASHED_IDS: ids only) records."""
    n, first = events.n[picked], events.first[picked]
    offsets = first - events.lane_base
    inline = (n == 1) & _INLINE[events.kind[picked]]
    wrong = ~inline & ((offsets < 0) | (offsets + n > len(events.lane)))
    num_bad = int(n[wrong].sum()) if wrong.any() else 0
    if num_bad:
        picked, n, first = picked[~wrong], n[~wrong], first[~wrong]
        offsets, inline = offsets[~wrong], inline[~wrong]
    offsets[inline] = 0  # any word will do: it is replaced below
    starts = np.cumsum(n) - n
    place = np.repeat(offsets - starts, n)
    place += np.arange(len(place))
    words = (events.lane if len(events.lane) else _ANY_WORD).take(place)
    words[starts[inline]] = first[inline]
    record = np.repeat(picked, n)
    if len(words) and int(words.max()) >= num_blocks:
        good = words < num_blocks
        num_bad += int(len(good) - good.sum())
        words, record = words[good], record[good]
    return Rows(record, words.view(np.int32), num_bad)
