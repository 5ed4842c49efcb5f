"""Mergeable histograms of durations: exponential buckets of base 2^(1/16), merged exactly.

Bucket 0 holds zeros; bucket i >= 1 holds [2^((i-1)/16), 2^(i/16)) ns. A quantile is reported as the
harmonic middle 2*lo*hi/(lo+hi) of its bucket, which is within (base-1)/(base+1) = 2.17 % of every
value in it, and never outside the least and greatest value seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from agent.errors import HistogramError
from agent.ledger.runs import differences

PER_DOUBLING: Final = 16
NUM_BUCKETS: Final = 1024  # 63 doublings and the zeros, rounded up
VERSION: Final = 1
MAX_ENCODED_BYTES: Final = 16 * NUM_BUCKETS

Counts = npt.NDArray[np.int64]

_EDGES: Final = np.exp2(np.arange(NUM_BUCKETS + 1) / PER_DOUBLING - 1 / PER_DOUBLING)
_LOW: Final = _EDGES[:-1]
_HIGH: Final = _EDGES[1:]
MIDDLES: Final = np.where(np.arange(NUM_BUCKETS) == 0, 0.0, 2 * _LOW * _HIGH / (_LOW + _HIGH))
MIDDLES.setflags(write=False)


def bucket_of(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return each value's bucket; negative durations count as zero."""
    floats = np.maximum(values, 0.5, dtype=np.float64, casting="unsafe")
    # 0.5 lands at -15: every zero does, and nothing else is below bucket 1.
    buckets: Counts = (np.log2(floats) * PER_DOUBLING).astype(np.int64) + 1
    return np.maximum(buckets, 0)


def bucket_edges(bucket: int) -> tuple[float, float]:
    """Return [low, high) of a bucket in ns; bucket 0 is [0, 0]."""
    return (0.0, 0.0) if bucket == 0 else (float(_LOW[bucket]), float(_HIGH[bucket]))


@dataclass(slots=True)
class Histogram:
    """Counts per bucket, with exact count, sum, least and greatest value (ns)."""

    counts: Counts = field(default_factory=lambda: np.zeros(NUM_BUCKETS, np.int64))
    count: int = 0
    sum_ns: int = 0
    min_ns: int | None = None
    max_ns: int | None = None

    def add(self, values: npt.NDArray[Any], weights: npt.NDArray[Any] | None = None) -> None:
        """Add values in ns; `weights` are whole numbers of times, all positive."""
        if not len(values):
            return
        values = np.maximum(np.asarray(values, dtype=np.int64), 0)
        times = np.ones(len(values), np.int64) if weights is None else weights.astype(np.int64)
        np.add.at(self.counts, bucket_of(values), times)
        low, high = int(values.min()), int(values.max())
        self.count += int(times.sum())
        self.sum_ns += sum_of_products(values, times)
        self.min_ns = low if self.min_ns is None else min(self.min_ns, low)
        self.max_ns = high if self.max_ns is None else max(self.max_ns, high)

    def merge(self, other: "Histogram") -> None:
        """Add everything that `other` holds: the same as having added its values here."""
        self.counts += other.counts
        self.count += other.count
        self.sum_ns += other.sum_ns
        ends = [end for end in (self.min_ns, other.min_ns) if end is not None]
        self.min_ns = min(ends, default=None)
        self.max_ns = max((e for e in (self.max_ns, other.max_ns) if e is not None), default=None)

    def add_buckets(
        self, buckets: Counts, counts: Counts, count: int, sum_ns: int, min_ns: int, max_ns: int
    ) -> None:
        """Merge a histogram given by its occupied buckets, each named once."""
        self.counts[buckets] += counts
        self.count += count
        self.sum_ns += sum_ns
        self.min_ns = min_ns if self.min_ns is None else min(self.min_ns, min_ns)
        self.max_ns = max_ns if self.max_ns is None else max(self.max_ns, max_ns)

    def copy(self) -> "Histogram":
        """Return an independent copy."""
        return Histogram(self.counts.copy(), self.count, self.sum_ns, self.min_ns, self.max_ns)

    def quantile(self, ratio: float) -> float | None:
        """Return the value (ns) at rank ceil(ratio x count); None when nothing was added."""
        if self.min_ns is None or self.max_ns is None:
            return None
        rank = max(1, -int(-ratio * self.count // 1))
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(np.clip(MIDDLES[bucket], self.min_ns, self.max_ns))

    def occupied(self) -> Iterator[tuple[int, int]]:
        """Yield (bucket, count) of every bucket that holds something, in order."""
        buckets = np.flatnonzero(self.counts)
        yield from zip(buckets.tolist(), self.counts[buckets].tolist(), strict=True)

    def encode(self) -> bytes:
        """Return the buckets as bytes: a version byte, then varints (bucket step, count)."""
        buckets = np.flatnonzero(self.counts)
        return encode_buckets(buckets, self.counts[buckets])

    @classmethod
    def decode(
        cls, blob: bytes, *, sum_ns: int = 0, min_ns: int | None = None, max_ns: int | None = None
    ) -> "Histogram":
        """Read `encode`'s bytes; sum, least and greatest stand in columns of their own.

        Raises:
            HistogramError: The bytes are not what `encode` writes.
        """
        histogram = cls(sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns)
        buckets, counts = decode_buckets(blob)
        histogram.counts[buckets] = counts
        histogram.count = int(histogram.counts.sum())
        if histogram.count:
            edges = _EDGES[[buckets[0], buckets[-1] + 1]]
            histogram.min_ns = int(edges[0]) if min_ns is None else min_ns
            histogram.max_ns = int(edges[1]) if max_ns is None else max_ns
        return histogram


def sum_of_products(values: Counts, times: Counts) -> int:
    """Return the exact sum of values x times, which may pass 64 bits only if a value is damaged."""
    if float(values.max()) * float(times.sum()) < 2**62:
        return int(np.dot(values, times))
    return sum(v * t for v, t in zip(values.tolist(), times.tolist(), strict=True))


def encode_buckets(buckets: npt.NDArray[Any], counts: npt.NDArray[Any]) -> bytes:
    """Encode ascending buckets and their counts."""
    pairs = np.empty(2 * len(buckets), np.int64)
    pairs[0::2] = differences(buckets, before=0)
    pairs[1::2] = counts
    return encode_pairs(pairs)


class Varints(NamedTuple):
    """Numbers as varints, one after the other, and where each begins."""

    data: bytes
    starts: npt.NDArray[np.int64]


def varints(numbers: npt.NDArray[np.int64]) -> Varints:
    """Encode numbers of 0 or more, seven bits a byte, the low ones first."""
    lengths = np.ones(len(numbers), np.int64)
    rest = numbers >> 7
    while rest.any():
        lengths += rest > 0
        rest >>= 7
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), np.uint8)
    for place in range(int(lengths.max(initial=0))):
        has = lengths > place
        more = np.where(lengths[has] > place + 1, 0x80, 0)
        out[starts[has] + place] = (numbers[has] >> (7 * place)) & 0x7F | more
    return Varints(out.tobytes(), starts)


def encode_pairs(pairs: npt.NDArray[np.int64]) -> bytes:
    """Encode (bucket step, count) pairs; nearly always one byte a number."""
    return b"\x01" + varints(pairs).data


def decode_buckets(blob: bytes) -> tuple[list[int], list[int]]:
    """Return buckets and counts of `encode_buckets`' bytes.

    Raises:
        HistogramError: The bytes are not what `encode_buckets` writes.
    """
    if not blob or blob[0] != VERSION or len(blob) > MAX_ENCODED_BYTES:
        raise HistogramError(f"histogram of {len(blob)} bytes has no version {VERSION} head")
    numbers: list[int] = []
    number = shift = 0
    for byte in memoryview(blob)[1:]:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            continue
        numbers.append(number)
        number = shift = 0
    steps, counts = numbers[0::2], numbers[1::2]
    buckets = np.cumsum(steps, dtype=object).tolist() if steps else []
    in_order = all(step > 0 for step in steps[1:])
    if shift or len(steps) != len(counts) or not in_order or max(counts, default=0) >= 2**62:
        raise HistogramError("histogram bytes end early or are out of order")
    if buckets and buckets[-1] >= NUM_BUCKETS:
        raise HistogramError(f"histogram bucket {buckets[-1]} of {NUM_BUCKETS}")
    return buckets, counts
