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
# table entries, strings, words of strings, hashes by block.
PREFIX: Final = Struct("<IQIIIIIIIII")
PREFIX_WORDS: Final = PREFIX.size // 4

# owner, state, tenant, cause, flags, blocker, since, arrived, prompt, max, output, computed,
# recomputed, preemptions, first token, priority, tier, parent, retry, table entries.
SEQUENCE: Final = Struct("<IIIIIIQQIIIIIIQiIIII")
SEQUENCE_WORDS: Final = SEQUENCE.size // 4

Part = bytes | memoryview

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
        hashes: Block to keyed hash, for every block with content identity, active or cached; or an
            `array('Q')` with one hash for each gpu block, 0 for none, which is copied as it is.
        cached_blocks: Blocks with count 0 whose content is kept.
        sequences: Every live sequence.
        host_counts: Reference count of each host block.
        step: The engine's last finished step.
    """

    counts: Sequence[int]
    hashes: "Mapping[int, int] | array[int]"
    cached_blocks: Collection[int]
    sequences: Sequence[KeyframeSequence]
    host_counts: Sequence[int] = ()
    step: int = 0


def empty_keyframe(*, total_blocks: int, host_blocks: int) -> Keyframe:
    """Return the state of an engine that has done nothing yet."""
    counts = array("I", bytes(4 * total_blocks))
    return Keyframe(counts, {}, (), (), array("I", bytes(4 * host_blocks)))


def encode_keyframe(keyframe: Keyframe, strings: Mapping[int, str]) -> list[Part]:
    """Return the keyframe's words in parts, little-endian, with every string id still in use."""
    rows = []
    tables = array("I")
    pack = SEQUENCE.pack
    for sequence in keyframe.sequences:
        table = sequence.table
        if isinstance(table, list):
            tables.fromlist(table)  # twice as fast as extending by an iterator
        else:
            tables.extend(table)
        rows.append(pack(*sequence[:19], len(table)))
    texts = _encode_strings(strings)
    hashes = keyframe.hashes
    by_block: array[int] | None = hashes if isinstance(hashes, array) else None
    pairs: Mapping[int, int] = hashes if isinstance(hashes, Mapping) else {}
    prefix = PREFIX.pack(
        KEYFRAME_VERSION,
        keyframe.step,
        len(keyframe.counts),
        len(keyframe.host_counts),
        len(pairs),
        len(keyframe.cached_blocks),
        len(rows),
        len(tables),
        len(strings),
        len(texts) // 4,
        0 if by_block is None else len(by_block),
    )
    return [
        prefix,
        _packed("I", keyframe.counts),
        _packed("I", keyframe.host_counts),
        _packed("I", pairs.keys()),
        _packed("Q", pairs.values()),
        b"" if by_block is None else _packed("Q", by_block),
        _packed("I", keyframe.cached_blocks),
        b"".join(rows),
        memoryview(tables).cast("B"),
        texts,
    ]


def _packed(code: str, values: Collection[int]) -> Part:
    """Return values as fixed-width integers; an array of that very width stands for itself."""
    if isinstance(values, array) and values.typecode == code:
        return memoryview(values).cast("B")
    return Struct(f"<{len(values)}{code}").pack(*values)


def _encode_strings(strings: Mapping[int, str]) -> bytes:
    parts = []
    for string_id, text in strings.items():
        encoded = text.encode("ascii", "replace")
        padding = bytes(-len(encoded) % 4)
        parts.append(Struct("<II").pack(string_id, len(encoded)) + encoded + padding)
    return b"".join(parts)
