"""Which of the records in a segment can be believed."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvpulse.events import FORMS, MAX_KINDS, REFUSED_KIND, Kind, LaneForm
from kvpulse.stream_values import KNOWN_KIND, Records, lane_words

Mask = npt.NDArray[np.bool_]

IS_TEXT: Mask = np.array(
    [code in set(Kind) and FORMS[Kind(code)].lane is LaneForm.TEXT for code in range(256)]
)


class Checked(NamedTuple):
    """One verdict per record."""

    good: Mask  # whole, of a known or an unknown kind
    refused: Mask  # a stand-in: whole, but its event is lost
    words: npt.NDArray[np.uint64]  # lane words


def check_records(records: Records, *, first_seq: int, lane_capacity: int) -> Checked:
    """Judge records by number, kind, offset and length.

    Lane words are handed out without holes, so a record's stretch must end where the next one's
    begins; a wrong offset or length shows there.

    Args:
        first_seq: The number that records[0] must have.
    """
    kind = records["kind"]
    count = len(records)
    expected = (np.arange(count, dtype=np.uint64) + np.uint64(first_seq)).astype(np.uint32)
    in_order = records["seq"] == expected
    words = lane_words(records)
    ends = records["first"].astype(np.uint64) + words
    inside = (words == 0) | (ends <= lane_capacity)
    refused = in_order & (kind == REFUSED_KIND) & KNOWN_KIND[np.minimum(records["aux"], 255)]
    good = in_order & inside & (kind != REFUSED_KIND) & (kind < MAX_KINDS)
    text = IS_TEXT[kind]
    if text.any():
        good &= ~text | (records["aux"] <= records["n"].astype(np.uint64) * 4)
    users = np.flatnonzero(good & (words > 0))
    if len(users) > 1:
        # What lies between two neighbours may have used words: unknown kinds, damaged records.
        opaque = np.cumsum(~(KNOWN_KIND[kind] & good) & ~refused)[users]
        torn = records["first"][users[1:]].astype(np.uint64) != ends[users[:-1]]
        good[users[:-1][torn & (opaque[1:] == opaque[:-1])]] = False
    return Checked(good, refused, words)
