"""Random bytes over a stream: never a crash, a hang, or memory above twice the segment."""

import contextlib
import random
import shutil
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvpulse.errors import JournalError, KeyframeDamagedError
from kvpulse.events import Kind
from kvpulse.keyframe_decoder import decode_keyframe
from kvpulse.reader import StreamReader
from kvpulse.stream_values import expand_words
from tests.kvpulse.factories_journal import busy_keyframe, open_recorder
from tests.kvpulse.test_rotation import fill_one_segment

SEGMENT_BYTES = 2**20
SMALL_CHANGE_BYTES = 64 * 1024  # what a reader holds besides
SECONDS = 10.0
SMALL_FILES = ("lock", "loss")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two segments, one of them full."""
    recorder = open_recorder(
        tmp_path_factory.mktemp("sound"), segment_bytes=SEGMENT_BYTES, snapshot=busy_keyframe
    )
    recorder.config({"engine": "a"})
    recorder.tenant("acme")
    recorder.cache(1, [1, 2, 3], [4, 5, 6])
    fill_one_segment(recorder)
    recorder.allocate(9, list(range(40)))
    recorder.close()
    return recorder.directory


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work") / "stream"


def damage(path: Path, hits: list[tuple[float, int, int]], *, most: int) -> None:
    """Write random bytes at `hits`: where in the first `most` bytes, how many, which seed."""
    size = min(most, path.stat().st_size)
    with path.open("r+b") as file:
        for where, length, seed in hits:
            file.seek(int(where * size))
            file.write(random.Random(seed).randbytes(length))
        file.truncate(max(path.stat().st_size, 1))


def read_whatever_is_there(stream: Path) -> int:
    """Read to the end, looking at every payload; return how many batches there were."""
    number = 0
    with StreamReader(stream) as reader:
        while (batch := reader.read()) is not None:
            number += 1
            for index in range(0, len(batch.records), 97):
                expand_words(batch, index)
            if len(batch.records) and batch.records["kind"][0] == Kind.KEYFRAME:
                try:
                    decode_keyframe(expand_words(batch, 0))
                except KeyframeDamagedError:
                    number += 1
        reader.status()
    return number


HITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True), st.sampled_from([1, 2, 8, 64, 5000]), st.integers()
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@example(hits=[(0.953125, 1, 0)], most=1344, target="00000000.seg")  # two whole copies
@given(
    hits=HITS,
    most=st.sampled_from([1344, 4096, 12_000, SEGMENT_BYTES]),
    target=st.sampled_from(["00000000.seg", "00000001.seg", "loss"]),
)
def test_random_bytes_anywhere_end_in_batches_gaps_or_a_clear_error(
    sound, work, hits, most, target
):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work)
    damage(work / target, hits, most=most)

    tracemalloc.start()
    started = time.monotonic()
    try:
        with contextlib.suppress(JournalError):
            assert read_whatever_is_there(work) < 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert time.monotonic() - started < SECONDS
    assert peak <= 2 * SEGMENT_BYTES + SMALL_CHANGE_BYTES


@pytest.mark.parametrize("seed", range(4))
def test_a_segment_of_noise_behind_a_sound_header_is_one_long_gap(sound, work, seed):
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work)
    with (work / "00000000.seg").open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(seed).randbytes(SEGMENT_BYTES - 4096))

    with StreamReader(work) as reader:
        first = reader.read()
        rest = list(iter(reader.read, None))

    assert first.gap.reason == "damaged"
    assert first.gap.first_seq == 0
    assert first.gap.end_seq == first.seq0
    assert first.records["kind"][0] == Kind.KEYFRAME
    assert sum(len(batch.records) for batch in [first, *rest]) == 2


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=400), cut=st.integers(0, 400))
def test_random_words_are_no_keyframe_or_a_clear_error(data, cut):
    import numpy as np

    from kvpulse.keyframe import encode_keyframe

    words = np.frombuffer(b"".join(encode_keyframe(busy_keyframe(), {1: "acme"})), np.uint32).copy()
    noise = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
    at = min(cut, len(words))
    words[at : at + len(noise)] = noise[: len(words) - at]
    with contextlib.suppress(KeyframeDamagedError):
        decoded = decode_keyframe(words[: len(words) - cut % 3])
        assert len(decoded.keyframe.counts) <= len(words)
