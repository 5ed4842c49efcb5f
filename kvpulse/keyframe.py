"""A keyframe: the whole state of pool and sequences, so that a segment can be read alone.

Encoding runs on the engine's thread and uses `array`; decoding is the reader's and lives in
`keyframe_decoder.py`.
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

KEYFRAME_VERSION: Final = 1

# version, step (low, high), gpu blocks, host blocks, hashed blocks, cached blocks, sequences,
# table entries, strings, words of strings, 0.
PREFIX: Final = Struct("<IQIIIIIIIII")
PREFIX_WORDS: Final = PREFIX.size // 4

# owner, state, tenant, cause, flags, blocker, since, arrived, prompt, max, output, computed,
# recomputed, preemptions, first token, priority, tier, parent, retry, table entries.
SEQUENCE: Final = Struct("<IIIIIIQQIIIIIIQIIIII")
SEQUENCE_WORDS: Final = SEQUENCE.size // 4

NULL_ENTRY: Final = 0xFFFF_FFFF  # a table entry whose block slid out of the window


class KeyframeSequence(NamedTuple):
    """One live sequence as a keyframe states it."""

    owner: int
    state: int  # SequenceState
    tenant: int = 0
    cause: int = 0  # WaitCause, 0 when it does not wait
    flags: int = 0  # WaitFlag
    blocker: int = 0
    since_ns: int = 0  # when the present state (or wait cause) began
    arrived_ns: int = 0
    prompt_tokens: int = 0
    max_tokens: int = 0
    output_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    first_token_ns: int = 0  # 0 when there was none
    priority: int = 0
    tier: int = 0
    parent: int = 0
    retry: int = 0
    table: Sequence[int] = ()  # gpu block ids in table order


@dataclass(frozen=True, slots=True)
class Keyframe:
    """The state after every record before it.

    Attributes:
        counts: Reference count of each gpu block; `array('I')` is copied fastest.
        hashes: Block to keyed hash, for every block with content identity, active or cached.
        cached_blocks: Blocks with count 0 whose content is kept.
        sequences: Every live sequence.
        host_counts: Reference count of each host block.
        step: The engine's last finished step.
    """

    counts: Sequence[int]
    hashes: Mapping[int, int]
    cached_blocks: Collection[int]
    sequences: Sequence[KeyframeSequence]
    host_counts: Sequence[int] = ()
    step: int = 0


def empty_keyframe(*, total_blocks: int, host_blocks: int) -> Keyframe:
    """Return the state of an engine that has done nothing yet."""
    counts = array("I", bytes(4 * total_blocks))
    return Keyframe(counts, {}, (), (), array("I", bytes(4 * host_blocks)))


def encode_keyframe(keyframe: Keyframe, strings: Mapping[int, str]) -> bytes:
    """Return the keyframe's words, little-endian, with every string id still in use."""
    rows = []
    tables = array("I")
    pack = SEQUENCE.pack
    for sequence in keyframe.sequences:
        table = sequence.table
        tables.extend(table)
        row = sequence[:15]
        priority = sequence.priority & 0xFFFF_FFFF
        rows.append(pack(*row, priority, *sequence[16:19], len(table)))
    texts = _encode_strings(strings)
    hashes = keyframe.hashes
    prefix = PREFIX.pack(
        KEYFRAME_VERSION,
        keyframe.step,
        len(keyframe.counts),
        len(keyframe.host_counts),
        len(hashes),
        len(keyframe.cached_blocks),
        len(rows),
        len(tables),
        len(strings),
        len(texts) // 4,
        0,
    )
    return b"".join(
        (
            prefix,
            array("I", keyframe.counts).tobytes(),
            array("I", keyframe.host_counts).tobytes(),
            array("I", hashes.keys()).tobytes(),
            array("Q", hashes.values()).tobytes(),
            array("I", keyframe.cached_blocks).tobytes(),
            *rows,
            tables.tobytes(),
            texts,
        )
    )


def _encode_strings(strings: Mapping[int, str]) -> bytes:
    parts = []
    for string_id, text in strings.items():
        encoded = text.encode("ascii", "replace")
        padding = bytes(-len(encoded) % 4)
        parts.append(Struct("<II").pack(string_id, len(encoded)) + encoded + padding)
    return b"".join(parts)
