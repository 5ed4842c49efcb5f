"""A window's series as bytes: what a saved baseline keeps in the store.

zstd over a line of JSON (the shape) and little-endian numbers. Nothing is trusted when it is read
back: sizes are bounded before anything is unpacked, and every index is checked.
"""

import json
from typing import Final

import numpy as np
import zstandard

from agent.baselines.errors import BaselineDamaged
from agent.baselines.first_tokens import FIRST_TOKEN_COUNTERS
from agent.baselines.metrics import COUNTERS, LATENCIES
from agent.baselines.window_series import NS, Bools, BucketLines, Floats, Ints, WindowSeries
from agent.rollups.histogram import NUM_BUCKETS
from agent.rollups.scalars import TIERS

VERSION: Final = 1
MAX_INTERVALS: Final = 1_500
ALL_COUNTERS: Final = (*COUNTERS, *FIRST_TOKEN_COUNTERS)
MAX_LINES: Final = 64 * MAX_INTERVALS * len(LATENCIES)
MAX_BYTES: Final = 8 * (MAX_INTERVALS * (len(ALL_COUNTERS) + 1) + 3 * MAX_LINES) + 4_096
MAX_COUNT: Final = 1 << 53


def encode_series(series: WindowSeries) -> bytes:
    """Return the series as bytes."""
    shape = {
        "version": VERSION,
        "tier_seconds": series.tier_seconds,
        "start_ns": series.start_ns,
        "num_intervals": series.num_intervals,
        "counters": list(series.counters),
        "latencies": {name: len(lines.bucket) for name, lines in series.latencies.items()},
    }
    parts = [json.dumps(shape).encode() + b"\n", series.is_counted.astype("<i8").tobytes()]
    parts += [values.astype("<f8").tobytes() for values in series.counters.values()]
    for lines in series.latencies.values():
        # Neighbouring lines differ little: steps pack far better than numbers that grow.
        interval = np.diff(lines.interval, prepend=0)
        parts += [part.astype("<i8").tobytes() for part in (interval, lines.bucket, lines.count)]
    return zstandard.ZstdCompressor(level=6, write_checksum=True).compress(b"".join(parts))


def decode_series(blob: bytes) -> WindowSeries:
    """Read `encode_series`' bytes.

    Raises:
        BaselineDamaged: They are damaged, of another version, or larger than any we write.
    """
    try:
        plain = zstandard.ZstdDecompressor().decompress(blob, max_output_size=MAX_BYTES)
        if len(plain) > MAX_BYTES:
            raise ValueError(f"{len(plain)} bytes")
        head, _, body = plain.partition(b"\n")
        return _read(json.loads(head), body)
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BaselineDamaged(f"the saved series cannot be read: {error}") from error


class _Numbers:
    """Arrays out of a body, one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def ints(self, num: int) -> Ints:
        return self._next(num, "<i8").astype(np.int64)

    def floats(self, num: int) -> Floats:
        return self._next(num, "<f8").astype(np.float64)

    def end(self) -> None:
        if self._at != len(self._body):
            raise ValueError("bytes are left over")

    def _next(self, num: int, kind: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        part = np.frombuffer(self._body, kind, num, self._at)
        self._at += part.nbytes
        return part


def _read(shape: dict[str, object], body: bytes) -> WindowSeries:
    if shape["version"] != VERSION:
        raise ValueError(f"version {shape['version']!r}, known is {VERSION}")
    num = _whole(shape["num_intervals"], 0, MAX_INTERVALS)
    tier_seconds = _whole(shape["tier_seconds"], TIERS[0], TIERS[-1])
    start_ns = _whole(shape["start_ns"], -(1 << 62), 1 << 62)
    names, lengths = shape["counters"], shape["latencies"]
    if tier_seconds not in TIERS or start_ns % (tier_seconds * NS):
        raise ValueError("its intervals are on no grid")
    if not isinstance(names, list) or not isinstance(lengths, dict):
        raise ValueError("its shape names no columns")
    numbers = _Numbers(body)
    is_counted: Bools = numbers.ints(num) != 0
    counters = {str(name): numbers.floats(num) for name in names}
    latencies = {str(name): _lines(numbers, length, num) for name, length in lengths.items()}
    numbers.end()
    missing = {name: np.full(num, np.nan) for name in ALL_COUNTERS}  # by an older version
    return WindowSeries(tier_seconds, start_ns, is_counted, missing | counters, latencies)


def _lines(numbers: _Numbers, length: object, num_intervals: int) -> BucketLines:
    num = _whole(length, 0, MAX_LINES)
    interval = np.cumsum(numbers.ints(num))
    lines = BucketLines(interval, numbers.ints(num), numbers.ints(num))
    for values, most in ((interval, num_intervals), (lines.bucket, NUM_BUCKETS)):
        if num and not (values.min() >= 0 and values.max() < most):
            raise ValueError("a histogram lies outside the window")
    if num and not (lines.count.min() >= 0 and lines.count.max() < MAX_COUNT):
        raise ValueError("a histogram counts what nobody can count")
    return lines


def _whole(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"found {value!r}, accepted is {least} to {most}")
    return value
