"""One segment file: where each byte stands, and how one is reserved and mapped for writing.

A segment is a header page, a lane of fixed records, and a lane of u32 words, 3 : 1. It is reserved
with `posix_fallocate` under a temporary name: a hole on a full file system would end the process
with SIGBUS at the first touch, which Python cannot catch.
"""

import mmap
import os
import platform
import zlib
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from kvpulse.emitter_choice import populate
from kvpulse.events import FORMAT_VERSION, HEADER_BYTES, MAGIC, MAX_KINDS, RECORD_BYTES

# magic, version, header bytes, ordering, block size, segment, first seq, wall ns, monotonic ns,
# record capacity, lane capacity, total blocks, host blocks, pid, pid namespace, process start,
# records not written so far.
FIXED: Final = Struct("<8sIIIIQQQQQQIIQQQQ")
COUNTS: Final = Struct(f"<{MAX_KINDS}Q")
CHECKSUM: Final = Struct("<I")

EMITTED_OFFSET: Final = 128
NOT_WRITTEN_OFFSET: Final = 640
CHECKSUM_OFFSET: Final = 1152
STATE_OFFSET: Final = 1216  # alone on its cache line
COMMIT_OFFSET: Final = 1280  # alone on its cache line

STATE_OPEN: Final = 1
STATE_CLOSED: Final = 2
STATE_FINISHED: Final = 3

ORDERING_TOTAL: Final = 1  # x86: stores become visible in the order in which they were made
ORDERING_WEAK: Final = 2  # a reader stays one poll behind the commit word

SEGMENT_SUFFIX: Final = ".seg"
RESERVED_SUFFIX: Final = ".seg.tmp"

# Words of a keyframe per block: its count, a hash with its block id, and two table entries.
KEYFRAME_WORDS_PER_BLOCK: Final = 6
KEYFRAME_WORDS_PER_HOST_BLOCK: Final = 2
KEYFRAME_WORDS_FIXED: Final = 64
PAGE_BYTES: Final = 4096

POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE of <asm-generic/mman-common.h>
MOST_TOUCHED_BYTES: Final = 256 * 1024


class SegmentShape(NamedTuple):
    """How many records and lane words a segment holds."""

    record_capacity: int
    lane_capacity: int

    @property
    def lane_offset(self) -> int:
        """Byte offset of the lane of words."""
        return HEADER_BYTES + self.record_capacity * RECORD_BYTES

    @property
    def file_bytes(self) -> int:
        """Size of the file, whole pages."""
        end = self.lane_offset + self.lane_capacity * 4
        return -(-end // PAGE_BYTES) * PAGE_BYTES


def segment_shape(segment_bytes: int, *, total_blocks: int, host_blocks: int) -> SegmentShape:
    """Return the shape of a segment of about `segment_bytes`, larger where the pool asks for it.

    A keyframe of a typical pool fills at most 1/8 of the lane of words.
    """
    # 128 bytes hold three records and eight words: the 3 : 1 split.
    units = max(1, (segment_bytes - HEADER_BYTES) // 128)
    keyframe = (
        KEYFRAME_WORDS_FIXED
        + KEYFRAME_WORDS_PER_BLOCK * total_blocks
        + KEYFRAME_WORDS_PER_HOST_BLOCK * host_blocks
    )
    units = max(units, keyframe)  # eight words a unit, so eight keyframes
    return SegmentShape(record_capacity=3 * units, lane_capacity=8 * units)


class ProcessIdentity(NamedTuple):
    """What tells one process from every other, also across containers that share a volume."""

    pid: int
    pid_namespace: int
    start: int  # clock ticks since boot


def process_identity() -> ProcessIdentity:
    """Return the identity of this process; zeros where /proc does not say."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start = int(fields[19])
    except (OSError, ValueError, IndexError):
        return ProcessIdentity(os.getpid(), 0, 0)
    return ProcessIdentity(os.getpid(), namespace, start)


def ordering_in_force() -> int:
    """Return how stores of this machine become visible to another core."""
    x86 = platform.machine().lower() in {"x86_64", "amd64", "i386", "i686"}
    return ORDERING_TOTAL if x86 else ORDERING_WEAK


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The part of a header that never changes once the segment has its name."""

    segment: int
    first_seq: int
    wall_ns: int
    monotonic_ns: int
    shape: SegmentShape
    total_blocks: int
    host_blocks: int
    block_size: int
    ordering: int
    process: ProcessIdentity
    unwritten_records: int
    emitted: tuple[int, ...]
    not_written: tuple[int, ...]

    def pack_into(self, buffer: mmap.mmap) -> None:
        """Write the header and its checksum at the start of `buffer`."""
        FIXED.pack_into(
            buffer,
            0,
            MAGIC,
            FORMAT_VERSION,
            HEADER_BYTES,
            self.ordering,
            self.block_size,
            self.segment,
            self.first_seq,
            self.wall_ns,
            self.monotonic_ns,
            *self.shape,
            self.total_blocks,
            self.host_blocks,
            *self.process,
            self.unwritten_records,
        )
        COUNTS.pack_into(buffer, EMITTED_OFFSET, *self.emitted)
        COUNTS.pack_into(buffer, NOT_WRITTEN_OFFSET, *self.not_written)
        CHECKSUM.pack_into(buffer, CHECKSUM_OFFSET, zlib.crc32(buffer[:CHECKSUM_OFFSET]))


def unpack_header(page: bytes, *, file_bytes: int) -> SegmentHeader | None:
    """Return the header in `page`, or None where it is damaged.

    Magic and version are the caller's to judge; everything else must agree with the checksum, and
    the lanes must lie inside the file.
    """
    if len(page) < HEADER_BYTES:
        return None
    if CHECKSUM.unpack_from(page, CHECKSUM_OFFSET)[0] != zlib.crc32(page[:CHECKSUM_OFFSET]):
        return None
    fields = FIXED.unpack_from(page, 0)
    shape = SegmentShape(fields[9], fields[10])
    if fields[2] != HEADER_BYTES or shape.file_bytes > file_bytes:
        return None
    return SegmentHeader(
        segment=fields[5],
        first_seq=fields[6],
        wall_ns=fields[7],
        monotonic_ns=fields[8],
        shape=shape,
        total_blocks=fields[11],
        host_blocks=fields[12],
        block_size=fields[4],
        ordering=fields[3],
        process=ProcessIdentity(*fields[13:16]),
        unwritten_records=fields[16],
        emitted=COUNTS.unpack_from(page, EMITTED_OFFSET),
        not_written=COUNTS.unpack_from(page, NOT_WRITTEN_OFFSET),
    )


class WritableSegment:
    """A reserved segment, mapped; `publish` gives it its name."""

    __slots__ = (
        "commit",
        "lane",
        "map",
        "number",
        "path",
        "records",
        "reserved_path",
        "shape",
        "state",
        "touched_bytes",
    )

    def __init__(
        self, directory: Path, number: int, shape: SegmentShape, mapped: mmap.mmap
    ) -> None:
        self.path = str(directory / f"{number:08d}{SEGMENT_SUFFIX}")  # once published
        self.reserved_path = str(directory / f"{number:08d}{RESERVED_SUFFIX}")  # until then
        self.number = number
        self.shape = shape
        self.map = mapped
        self.touched_bytes = 0
        whole = memoryview(mapped)
        lane_bytes = whole[shape.lane_offset : shape.lane_offset + 4 * shape.lane_capacity]
        self.lane = lane_bytes.cast("I")
        records_end = HEADER_BYTES + RECORD_BYTES * shape.record_capacity
        self.records = whole[HEADER_BYTES:records_end]
        self.state = whole[STATE_OFFSET : STATE_OFFSET + 8].cast("Q")
        self.commit = whole[COMMIT_OFFSET : COMMIT_OFFSET + 8].cast("Q")

    def publish(self) -> None:
        """Give the segment its name, so that readers see it."""
        os.rename(self.reserved_path, self.path)

    def touch(self) -> bool:
        """Take the page faults of a further piece; False where there is none or it needs the GIL.

        In pieces, so that nobody waits long for the kernel's lock on this process's memory. Without
        the extension nothing is done: `mmap.madvise` holds the GIL for as long as it runs.
        """
        start = self.touched_bytes
        length = min(MOST_TOUCHED_BYTES, self.shape.file_bytes - start)
        if populate is None or length <= 0:
            return False
        try:
            populate(self.map, start, length)
        except (OSError, ValueError):
            return False  # a kernel before 5.14, or unmapped already
        self.touched_bytes += length
        return True

    def unmap(self) -> None:
        """Let go of the mapping."""
        self.records.release()
        self.lane.release()
        self.state.release()
        self.commit.release()
        self.map.close()


def reserve_segment(directory: Path, number: int, shape: SegmentShape) -> WritableSegment:
    """Reserve and map a segment under its temporary name; no page of it can be missing later.

    Raises:
        OSError: The file cannot be made or the space cannot be had; nothing is left behind.
    """
    path = directory / f"{number:08d}{RESERVED_SUFFIX}"
    mapped = map_reserved(path, shape.file_bytes)
    _touch_ahead(mapped, shape)
    return WritableSegment(directory, number, shape, mapped)


def _touch_ahead(mapped: mmap.mmap, shape: SegmentShape) -> None:
    """Take the page faults of the header and of a keyframe now, not in the engine's thread."""
    lane = shape.lane_offset // PAGE_BYTES * PAGE_BYTES
    keyframe_bytes = min(shape.lane_capacity // 2, MOST_TOUCHED_BYTES)  # an eighth of the lane
    try:
        mapped.madvise(POPULATE_WRITE, 0, 2 * PAGE_BYTES)
        mapped.madvise(POPULATE_WRITE, lane, -(-keyframe_bytes // PAGE_BYTES) * PAGE_BYTES)
    except (OSError, ValueError):
        return  # a kernel before 5.14: the faults come later


def map_reserved(path: Path, size: int) -> mmap.mmap:
    """Create `path` with `size` bytes that are really there, and map them shared."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)
