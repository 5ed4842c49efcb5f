"""Read a keyframe's words back, trusting none of them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvpulse.errors import KeyframeDamagedError
from kvpulse.keyframe import (
    KEYFRAME_VERSION,
    PREFIX,
    PREFIX_WORDS,
    SEQUENCE_WORDS,
    Keyframe,
    KeyframeSequence,
)
from kvpulse.plain_text import plain_text

Words = npt.NDArray[np.uint32]

# The names of `KeyframeSequence`, its table replaced by the number of its entries.
SEQUENCE_DTYPE: np.dtype[np.void] = np.dtype(
    [
        *((name, "<u4") for name in KeyframeSequence._fields[:6]),
        ("since_ns", "<u8"),
        ("arrived_ns", "<u8"),
        *((name, "<u4") for name in KeyframeSequence._fields[8:14]),
        ("first_token_ns", "<u8"),
        ("priority", "<i4"),
        *((name, "<u4") for name in KeyframeSequence._fields[16:19]),
        ("table_entries", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class KeyframeArrays:
    """A keyframe as arrays; `tables[i]` of a sequence lie one after the other, in order."""

    step: int
    counts: Words
    host_counts: Words
    hashed_blocks: Words
    hashes: npt.NDArray[np.uint64]
    cached_blocks: Words
    sequences: npt.NDArray[np.void]
    tables: Words
    strings: dict[int, str]


class DecodedKeyframe(NamedTuple):
    """A keyframe and the strings that were in use when it was taken."""

    keyframe: Keyframe
    strings: dict[int, str]


def decode_keyframe(words: npt.NDArray[np.uint32]) -> DecodedKeyframe:
    """Return the keyframe and its strings as plain Python values.

    Raises:
        KeyframeDamagedError: The words contradict themselves.
    """
    arrays = decode_keyframe_arrays(words)
    ends = np.cumsum(arrays.sequences["table_entries"], dtype=np.int64)
    sequences = []
    for row, end in zip(arrays.sequences, ends, strict=True):
        values = row.item()
        table = arrays.tables[int(end) - values[-1] : int(end)].tolist()
        sequences.append(KeyframeSequence._make((*values[:-1], table)))
    keyframe = Keyframe(
        counts=arrays.counts.tolist(),
        hashes=dict(zip(arrays.hashed_blocks.tolist(), arrays.hashes.tolist(), strict=True)),
        cached_blocks=arrays.cached_blocks.tolist(),
        sequences=sequences,
        host_counts=arrays.host_counts.tolist(),
        step=arrays.step,
    )
    return DecodedKeyframe(keyframe, arrays.strings)


def decode_keyframe_arrays(words: npt.NDArray[np.uint32]) -> KeyframeArrays:
    """Return the keyframe as arrays, for readers that follow large pools.

    Raises:
        KeyframeDamagedError: The words contradict themselves.
    """
    data = np.ascontiguousarray(words, dtype="<u4")
    if len(data) < PREFIX_WORDS:
        raise KeyframeDamagedError(f"a keyframe of {len(data)} words is too short")
    prefix = PREFIX.unpack_from(data.tobytes()[: PREFIX.size])
    version, step, gpu, host, hashed, cached, live, entries, num_strings, text_words, dense = prefix
    if version != KEYFRAME_VERSION:
        raise KeyframeDamagedError(f"keyframe version {version} is unknown; update kvpulse")
    sizes = [gpu, host, hashed, 2 * hashed, 2 * dense, cached]
    sizes += [SEQUENCE_WORDS * live, entries, text_words]
    if PREFIX_WORDS + sum(sizes) != len(data):
        raise KeyframeDamagedError(
            f"a keyframe of {len(data)} words says it has {PREFIX_WORDS + sum(sizes)}"
        )
    parts = np.split(data[PREFIX_WORDS:], np.cumsum(sizes)[:-1])
    sequences = np.frombuffer(parts[6].tobytes(), SEQUENCE_DTYPE)
    if int(sequences["table_entries"].sum(dtype=np.int64)) != entries:
        raise KeyframeDamagedError("a keyframe's tables and its sequences disagree")
    by_block = np.frombuffer(parts[4].tobytes(), "<u8")
    named = np.flatnonzero(by_block)
    return KeyframeArrays(
        step=step,
        counts=parts[0],
        host_counts=parts[1],
        hashed_blocks=np.concatenate([parts[2], named.astype(np.uint32)]),
        hashes=np.concatenate([np.frombuffer(parts[3].tobytes(), "<u8"), by_block[named]]),
        cached_blocks=parts[5],
        sequences=sequences,
        tables=parts[7],
        strings=_decode_strings(parts[8].tobytes(), num_strings),
    )


def _decode_strings(data: bytes, num_strings: int) -> dict[int, str]:
    strings: dict[int, str] = {}
    at = 0
    for _ in range(num_strings):
        if at + 8 > len(data):
            raise KeyframeDamagedError("a keyframe's strings end too early")
        string_id = int.from_bytes(data[at : at + 4], "little")
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 8 + length > len(data):
            raise KeyframeDamagedError("a string of a keyframe is longer than the keyframe")
        text = data[at + 8 : at + 8 + length].decode("ascii", "replace")
        strings[string_id] = plain_text(text)
        at += 8 + length + -length % 4
    return strings
