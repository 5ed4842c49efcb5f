"""Chunks: a stretch of records as one compressed blob, about 2 bytes an event.

Layout: version u8, flags u8 (1: as `agent.chunks.layout` has it), CRC32 of the payload u32, size of
the payload u32, compressed size of the columns u32, then two zstd frames: the columns, and the
content-hash words on their own (they do not compress, and their cost is stated apart). The payload
is both, decompressed, one after the other. A keyframe's words are left out: a snapshot is stored
wherever one is needed.
"""

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from agent.chunks.layout import by_bytes, from_bytes, is_quiet, lay_out, take_up
from agent.errors import ChunkError
from agent.ledger.delta import Chunk
from agent.ledger.event_columns import Bools, Ints, Words, lane_words_of
from agent.ledger.runs import differences
from kvpulse.events import ArriveWord, Kind
from kvpulse.stream_values import RECORD_DTYPE, Records

VERSION: Final = 1
LEVEL: Final = 3
MAX_PAYLOAD_BYTES: Final = 64 << 20
_RECORD_BYTES: Final = 28  # that each record has in the columns, at least
_HEAD: Final = Struct("<BBIII")
_COUNTS: Final = Struct("<QQIII")  # first time, first seq, records, lane words, hash words
_COLUMNS: Final = ("kind", "flags", "tenant", "owner", "n", "aux")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records and the lane words that they use, in order; the lane begins at `lane_base`."""

    seq0: int
    records: Records
    lane: Words
    lane_base: int


def encode_chunk(stretch: Stretch, num_events: int) -> Chunk:
    """Compress a stretch of at least one record."""
    records = stretch.records
    lane, is_hash, inline = _own_lane(stretch)
    quiet = not is_hash.any() and is_quiet(records)
    raw = by_bytes if quiet else _as_they_are
    if quiet:
        lane = lay_out(records, _lane_words(records), lane)
    times = records["ts_ns"].astype(np.int64)
    counts = _COUNTS.pack(
        int(times[0]), stretch.seq0, len(records), int((~is_hash).sum()), int(is_hash.sum())
    )
    columns = b"".join(
        (
            counts,
            raw(differences(times, before=int(times[0]))),
            raw(np.diff(records["seq"], prepend=records["seq"][:1])),
            *(raw(np.ascontiguousarray(records[name])) for name in _COLUMNS),
            raw(inline),
            raw(lane[~is_hash]),
        )
    )
    hashes = lane[is_hash].tobytes()
    packer = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False)
    packed, packed_hashes = packer.compress(columns), packer.compress(hashes)
    crc = zlib.crc32(hashes, zlib.crc32(columns))
    head = _HEAD.pack(VERSION, int(quiet), crc, len(columns) + len(hashes), len(packed))
    return Chunk(
        seq0=stretch.seq0,
        num_records=len(records),
        num_events=num_events,
        t0_ns=int(times[0]),
        t1_ns=int(times[-1]),
        blob=head + packed + packed_hashes,
        crc=crc,
        hash_bytes=len(packed_hashes) if len(hashes) else 0,
    )


def decode_chunk(blob: bytes) -> Stretch:
    """Read a chunk back; its lane begins at 0.

    Raises:
        ChunkError: It is damaged or of another version.
    """
    columns, hashes, quiet = _unpack(blob)
    try:
        return _rebuild(columns, np.frombuffer(hashes, "<u4"), quiet=quiet)
    except (ValueError, IndexError, OverflowError) as error:
        raise ChunkError(f"a chunk's columns contradict each other: {error}") from error


def _as_they_are(values: npt.NDArray[Any]) -> bytes:
    return values.tobytes()


def _lane_words(records: Records) -> Ints:
    """Return how many words of a chunk's lane each record has."""
    kind, n = np.ascontiguousarray(records["kind"]), records["n"].astype(np.int64)
    used: Ints = np.where(kind == int(Kind.KEYFRAME), 0, lane_words_of(kind, n))
    return used


def _own_lane(stretch: Stretch) -> tuple[Words, Bools, Words]:
    """Return the lane words in record order, which are hashes, and the inline ones."""
    records = stretch.records
    kind, n = records["kind"], records["n"].astype(np.int64)
    used = _lane_words(records)
    starts = np.cumsum(used) - used
    total = int(used.sum())
    places = records["first"].astype(np.int64) - stretch.lane_base - starts
    in_lane = places[used > 0]
    if len(in_lane) and (in_lane == in_lane[0]).all():
        lane = stretch.lane[int(in_lane[0]) : int(in_lane[0]) + total]  # without holes: as it is
    else:
        lane = stretch.lane[np.arange(total) + np.repeat(places, used)]
    is_hash = _hash_words(kind, n, used)
    # `first` says something of its own only where no word stands in the lane.
    return lane, is_hash, np.ascontiguousarray(records["first"])[used == 0]


def _hash_words(kind: npt.NDArray[np.uint8], n: Ints, used: Ints) -> Bools:
    """Return which lane words are content hashes: those of `cache` and at the end of `arrive`."""
    head = int(ArriveWord.NUM_HASHES) + 1
    skipped = np.where(kind == int(Kind.CACHE), n, np.where(kind == int(Kind.ARRIVE), head, used))
    spans = np.empty(2 * len(used), np.int64)
    spans[0::2] = np.minimum(skipped, used)
    spans[1::2] = used - spans[0::2]
    flags: Bools = np.repeat(np.tile([False, True], len(used)), spans)
    return flags


class _Unpacked(NamedTuple):
    columns: bytes
    hashes: bytes
    quiet: bool


def _unpack(blob: bytes) -> _Unpacked:
    if len(blob) < _HEAD.size:
        raise ChunkError(f"a chunk of {len(blob)} bytes is too short for its head")
    version, flags, crc, size, packed = _HEAD.unpack_from(blob)
    if version != VERSION or flags not in (0, 1):
        raise ChunkError(f"chunk version {version}.{flags}, this kvpulse reads {VERSION}.0 and .1")
    if size > MAX_PAYLOAD_BYTES:
        raise ChunkError(f"a chunk claims {size} bytes, more than {MAX_PAYLOAD_BYTES}")
    frames = memoryview(blob)[_HEAD.size :]
    columns = _decompress(frames[:packed], size)
    hashes = _decompress(frames[packed:], size - len(columns))
    if len(columns) + len(hashes) != size or zlib.crc32(hashes, zlib.crc32(columns)) != crc:
        raise ChunkError("a chunk's bytes do not match its checksum")
    return _Unpacked(columns, hashes, bool(flags))


def _decompress(frame: memoryview, at_most: int) -> bytes:
    """Decompress one frame, never to more than the bytes that are left."""
    try:
        if zstandard.frame_content_size(frame) not in range(at_most + 1):
            raise ChunkError(f"a chunk's frame does not fit into its {at_most} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=max(at_most, 1))
    except zstandard.ZstdError as error:
        raise ChunkError(f"a chunk's frame is damaged: {error}") from error


def _rebuild(columns: bytes, hashes: Words, *, quiet: bool) -> Stretch:
    if len(columns) < _COUNTS.size:
        raise ChunkError("a chunk has no counts")
    t0_ns, seq0, num_records, num_plain, num_hashes = _COUNTS.unpack_from(columns)
    records = (
        np.zeros(num_records, RECORD_DTYPE) if num_records * _RECORD_BYTES <= len(columns) else None
    )
    if records is None or num_hashes != len(hashes):
        raise ChunkError("a chunk's counts contradict its size")
    at = _COUNTS.size

    def column(dtype: Any, size: int) -> npt.NDArray[Any]:
        nonlocal at
        start, at = at, at + size * np.dtype(dtype).itemsize
        if at > len(columns):
            raise ChunkError("a chunk ends within a column")
        part = memoryview(columns)[start:at]
        return from_bytes(part, dtype) if quiet else np.frombuffer(part, dtype)

    records["ts_ns"] = np.cumsum(column("<i8", num_records)).astype(np.uint64) + np.uint64(t0_ns)
    records["seq"] = np.cumsum(column("<u4", num_records), dtype=np.uint32) + np.uint32(
        seq0 & 0xFFFF_FFFF
    )
    for name in _COLUMNS:
        records[name] = column(RECORD_DTYPE[name], num_records)
    keyframes = records["kind"] == int(Kind.KEYFRAME)
    used = _lane_words(records)
    total = num_plain + num_hashes
    if int(used.sum()) != total or (used < 0).any():
        raise ChunkError("a chunk's lane and its records disagree")
    records["first"] = np.cumsum(used) - used
    records["first"][used == 0] = column("<u4", int((used == 0).sum()))
    records["n"][keyframes] = 0
    plain = column("<u4", num_plain)
    if quiet:
        if num_hashes:
            raise ChunkError("a quiet chunk holds content hashes")
        plain = take_up(records, used, plain)
    lane = _woven(records, used, plain, hashes)
    if at != len(columns):
        raise ChunkError(f"a chunk has {len(columns) - at} bytes too many")
    return Stretch(seq0, records, lane, 0)


def _woven(records: Records, used: Ints, plain: Words, hashes: Words) -> Words:
    is_hash = _hash_words(records["kind"], records["n"].astype(np.int64), used)
    if int(is_hash.sum()) != len(hashes):
        raise ChunkError("a chunk's hashes and its records disagree")
    lane = np.empty(len(is_hash), np.uint32)
    lane[~is_hash], lane[is_hash] = plain, hashes
    return lane
