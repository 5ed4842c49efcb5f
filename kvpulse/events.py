"""The vocabulary of the journal: event kinds, codes, and the shape of one record.

Every number here is written to disk, so it never changes meaning; new ones are added at the end.
`docs/journal-format.md` draws the same tables byte by byte; a test builds a parser from that page.
"""

from enum import IntEnum, IntFlag, StrEnum
from struct import Struct
from typing import Final, NamedTuple

MAGIC: Final = b"KVPULSEJ"
FORMAT_VERSION: Final = 1

HEADER_BYTES: Final = 4096
RECORD_BYTES: Final = 32
MAX_KINDS: Final = 64
MAX_STRING_BYTES: Final = 128

# ts_ns, seq, kind, flags, tenant, owner, first, n, aux (little-endian, no padding).
RECORD: Final = Struct("<QIBBHIIII")

NO_OWNER: Final = 0
UNKNOWN_OWNER: Final = 0xFFFF_FFFF
NOT_MEASURED: Final = 0xFFFF_FFFF  # in a payload word: nobody measured this

HOST_TIER: Final = 0x80  # flag bit on block kinds and `pool`: the ids are host blocks


class Kind(IntEnum):
    """What one record states."""

    ALLOCATE = 1
    SHARE = 2
    FREE = 3
    COPY_ON_WRITE = 4
    CACHE = 5
    EVICT = 6
    SWAP_OUT = 7
    SWAP_IN = 8
    ALLOCATE_FAILED = 9
    HOLD = 10

    ARRIVE = 16
    WAIT = 17
    ADMIT = 18
    REJECT = 19
    PREFIX_HIT = 20
    PREEMPT = 21
    RESUME = 22
    FORK = 23
    FIRST_TOKEN = 24
    FINISH = 25

    STEP = 32
    POOL = 33
    KEYFRAME = 34
    HEARTBEAT = 35
    CONFIG = 36
    DEFINE = 37


class LaneForm(StrEnum):
    """What the lane words of a record hold."""

    IDS = "ids"  # n block ids; a single one stands in `first` itself
    PAIRS = "pairs"  # 2n words: source, target, source, target …
    HASHED_IDS = "hashed_ids"  # n block ids, then n 64-bit hashes as (low, high) words
    WORDS = "words"  # n payload words; a single one stands in `first` itself
    TEXT = "text"  # n words of UTF-8, zero-padded; `aux` is its length in bytes


class KindForm(NamedTuple):
    """How a kind is laid out and counted."""

    lane: LaneForm
    counts_blocks: bool  # the event count of a record is n; otherwise it is 1


FORMS: Final[dict[Kind, KindForm]] = {
    Kind.ALLOCATE: KindForm(LaneForm.IDS, True),
    Kind.SHARE: KindForm(LaneForm.IDS, True),
    Kind.FREE: KindForm(LaneForm.IDS, True),
    Kind.COPY_ON_WRITE: KindForm(LaneForm.PAIRS, True),
    Kind.CACHE: KindForm(LaneForm.HASHED_IDS, True),
    Kind.EVICT: KindForm(LaneForm.IDS, True),
    Kind.SWAP_OUT: KindForm(LaneForm.PAIRS, True),
    Kind.SWAP_IN: KindForm(LaneForm.PAIRS, True),
    Kind.ALLOCATE_FAILED: KindForm(LaneForm.WORDS, False),
    Kind.HOLD: KindForm(LaneForm.IDS, True),
    **{kind: KindForm(LaneForm.WORDS, False) for kind in Kind if Kind.ARRIVE <= kind < Kind.CONFIG},
    Kind.CONFIG: KindForm(LaneForm.TEXT, False),
    Kind.DEFINE: KindForm(LaneForm.TEXT, False),
}


class FreeOutcome(IntEnum):
    """Where a freed block went (`flags` of `free`, low two bits)."""

    HELD = 0  # somebody else still holds it
    TO_CACHE = 1
    TO_FREE = 2
    REFUSED = 3  # nobody held it: a double free, refused and served on


class WaitCause(IntEnum):
    """Why a sequence waits, in the order in which the first that holds is chosen."""

    DEFERRED = 1
    TENANT_QUOTA = 2
    BATCH_SLOTS = 3
    POOL = 4
    POOL_BEHIND = 5
    TOKEN_BUDGET = 6
    ENGINE_BUSY = 7


class WaitFlag(IntFlag):
    """Every cause that holds at once (`flags` of `wait`): bit `cause - 1`."""

    DEFERRED = 1
    TENANT_QUOTA = 2
    BATCH_SLOTS = 4
    POOL = 8
    POOL_BEHIND = 16
    TOKEN_BUDGET = 32
    ENGINE_BUSY = 64


class WaitClass(StrEnum):
    """The four classes that queue time is split over."""

    POOL = "pool"
    SCHEDULER = "scheduler"
    QUOTA = "quota"
    TRANSFER = "transfer"


WAIT_CLASSES: Final[dict[WaitCause, WaitClass]] = {
    WaitCause.DEFERRED: WaitClass.TRANSFER,
    WaitCause.TENANT_QUOTA: WaitClass.QUOTA,
    WaitCause.BATCH_SLOTS: WaitClass.SCHEDULER,
    WaitCause.POOL: WaitClass.POOL,
    WaitCause.POOL_BEHIND: WaitClass.POOL,
    WaitCause.TOKEN_BUDGET: WaitClass.SCHEDULER,
    WaitCause.ENGINE_BUSY: WaitClass.SCHEDULER,
}


class RejectReason(IntEnum):
    """Why a request was refused (`aux` of `reject`)."""

    CONTEXT_TOO_LONG = 1
    EXCEEDS_POOL = 2
    EXCEEDS_QUOTA = 3
    INVALID_REQUEST = 4
    QUEUE_FULL = 5
    ABOVE_WATERMARK = 6
    POOL_TIMEOUT = 7
    DEADLINE = 8
    OUT_OF_MEMORY = 9
    SHUTTING_DOWN = 10


class RejectRule(NamedTuple):
    """What a refused client is told."""

    http_status: int
    retryable: bool


REJECT_RULES: Final[dict[RejectReason, RejectRule]] = {
    RejectReason.CONTEXT_TOO_LONG: RejectRule(400, False),
    RejectReason.EXCEEDS_POOL: RejectRule(400, False),
    RejectReason.EXCEEDS_QUOTA: RejectRule(400, False),
    RejectReason.INVALID_REQUEST: RejectRule(400, False),
    RejectReason.QUEUE_FULL: RejectRule(429, True),
    RejectReason.ABOVE_WATERMARK: RejectRule(503, True),
    RejectReason.POOL_TIMEOUT: RejectRule(503, True),
    RejectReason.DEADLINE: RejectRule(504, True),
    RejectReason.OUT_OF_MEMORY: RejectRule(503, True),
    RejectReason.SHUTTING_DOWN: RejectRule(503, True),
}


class FinishReason(IntEnum):
    """How a sequence ended (`aux` of `finish`); `rejected` is stated by `reject` alone."""

    STOP = 1
    LENGTH = 2
    CANCELLED = 3
    TIMEOUT = 4
    ERROR = 5
    REJECTED = 6


class PreemptMode(IntEnum):
    """How a running sequence gave its blocks back (`flags` of `preempt`)."""

    RECOMPUTE = 1
    SWAP = 2


class EvictReason(IntEnum):
    """Why a cached block lost its content (`aux` of `evict`)."""

    REUSED = 1  # taken for new data
    CLEARED = 2  # the cache was reset


class HoldReason(IntEnum):
    """Why blocks stay active without a live sequence (`flags` of `hold`)."""

    TRANSFER = 1
    PINNED = 2
    OTHER = 3


class SequenceState(IntEnum):
    """A live sequence's state in a keyframe."""

    WAITING = 1
    RUNNING = 2
    PREEMPTED = 3  # waits again; its blocks are gone
    SWAPPED = 4  # waits again; its blocks are in host memory


class BlockState(IntEnum):
    """State of one physical block. active + cached + free = total, always."""

    FREE = 0
    CACHED = 1
    ACTIVE = 2


class ArriveWord(IntEnum):
    """Payload words of `arrive`, by position; `num_hashes` pairs of hash words follow.

    `aux` is the time from the server's accepting the request, in microseconds plus 1; 0 unmeasured.
    """

    PROMPT_TOKENS = 0
    MAX_TOKENS = 1  # after clamping to the context length
    ASKED_MAX_TOKENS = 2  # what the client asked for, NOT_MEASURED if it did not say
    PRIORITY = 3  # two's complement
    TIER = 4
    PARENT = 5  # sequence number of the request's first sequence, 0 if this is it
    RETRY = 6
    DEADLINE_LOW = 7  # absolute monotonic ns, 0 for none
    DEADLINE_HIGH = 8
    REQUEST_HASH_LOW = 9  # keyed hash of the client's request id, 0 for none
    REQUEST_HASH_HIGH = 10
    NUM_HASHES = 11


class FinishWord(IntEnum):
    """Payload words of `finish`, by position."""

    PROMPT_TOKENS = 0
    OUTPUT_TOKENS = 1
    COMPUTED_TOKENS = 2  # tokens run through the model for it, recomputation included
    RECOMPUTED_TOKENS = 3


class PreemptWord(IntEnum):
    """Payload words of `preempt`, by position; `aux` is the beneficiary."""

    TOKENS_LOST = 0
    BLOCKS_FREED = 1
    BLOCKS_KEPT = 2  # of those freed, how many stay cached


class FailWord(IntEnum):
    """Payload words of `allocate_failed`, by position; `aux` is the `WaitCause`."""

    NEEDED = 0
    FREE = 1
    CACHED = 2


class StepWord(IntEnum):
    """Payload words of `step`, by position; `aux` is the step number's low 32 bits."""

    STEP_HIGH = 0
    PREFILL_TOKENS = 1
    DECODE_TOKENS = 2
    SEQUENCES = 3
    CONTEXT_TOKENS = 4  # sum of context lengths over the step's sequences
    WAITING = 5
    SCHEDULE_LOW = 6
    SCHEDULE_HIGH = 7
    COMPUTE_LOW = 8
    COMPUTE_HIGH = 9
    SAMPLE_LOW = 10
    SAMPLE_HIGH = 11


class PoolWord(IntEnum):
    """Payload words of `pool`, by position: the pool's own account of itself."""

    TOTAL = 0
    ACTIVE = 1
    CACHED = 2
    FREE = 3
    SUM_LOW = 4  # sum of reference counts
    SUM_HIGH = 5
    CHECKSUM_LOW = 6  # see `block_weight`
    CHECKSUM_HIGH = 7
    FILLED_SLOTS = 8  # filled token slots in active blocks, each block once; or NOT_MEASURED
    LARGEST_FREE_RUN = 9  # longest run of neighbouring free ids; or NOT_MEASURED


class HeartbeatWord(IntEnum):
    """Payload words of `heartbeat`, by position."""

    STEP_LOW = 0
    STEP_HIGH = 1
    LIVE = 2
    WAITING = 3
    WALL_LOW = 4
    WALL_HIGH = 5
    MONOTONIC_LOW = 6
    MONOTONIC_HIGH = 7


U64_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


def block_weight(block_id: int) -> int:
    """Return the 64-bit weight of a block in the pool's checksum.

    The checksum is the sum over blocks of weight x reference count, modulo 2**64: linear, so that a
    reader can follow it event by event, and different for two blocks that traded their counts.

    Source: the finaliser of splitmix64 (Steele, Lea and Flood 2014), over block_id + 1, made odd.
    """
    z = (block_id + 1) * 0x9E37_79B9_7F4A_7C15 & U64_MASK
    z = (z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9 & U64_MASK
    z = (z ^ z >> 27) * 0x94D0_49BB_1331_11EB & U64_MASK
    return (z ^ z >> 31) | 1


def event_count(kind: Kind, n: int) -> int:
    """Return how many events a record stands for: n for block kinds, 1 for all others."""
    return n if FORMS[kind].counts_blocks else 1


# Not a `Kind`: a record with this code stands in for an event whose values did not fit its fields.
# `aux` is the kind it would have been and `n` its events; a reader counts them as lost.
REFUSED_KIND: Final = 0
