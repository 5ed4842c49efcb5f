"""A keyframe comes back as it went in, however its parts were handed over."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpulse.errors import KeyframeDamagedError
from kvpulse.keyframe import Keyframe, KeyframeSequence, empty_keyframe, encode_keyframe
from kvpulse.keyframe_decoder import decode_keyframe, decode_keyframe_arrays
from tests.kvpulse.factories_journal import busy_keyframe

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
SEQUENCES = st.builds(
    KeyframeSequence,
    *[U32] * 6,
    U64,
    U64,
    *[U32] * 6,
    U64,
    st.integers(-(2**31), 2**31 - 1),
    *[U32] * 3,
    st.lists(U32, max_size=9),
)
KEYFRAMES = st.builds(
    Keyframe,
    counts=st.lists(U32, max_size=20),
    hashes=st.dictionaries(U32, U64, max_size=10),
    cached_blocks=st.lists(U32, max_size=10),
    sequences=st.lists(SEQUENCES, max_size=4),
    host_counts=st.lists(U32, max_size=5),
    step=U64,
)
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=128)


def words_of(keyframe: Keyframe, strings: dict[int, str] | None = None) -> np.ndarray:
    return np.frombuffer(b"".join(encode_keyframe(keyframe, strings or {})), np.uint32)


@given(keyframe=KEYFRAMES, strings=st.dictionaries(st.integers(1, 65535), TEXT, max_size=5))
def test_every_field_comes_back(keyframe, strings):
    assert decode_keyframe(words_of(keyframe, strings)) == (keyframe, strings)


def test_arrays_lists_and_sets_say_the_same():
    plain = busy_keyframe()
    hashes = array("Q", [0] * 64)
    for block, value in plain.hashes.items():
        hashes[block] = value
    fast = Keyframe(
        array("I", plain.counts),
        hashes,
        dict.fromkeys(plain.cached_blocks),
        [row._replace(table=array("I", row.table)) for row in plain.sequences],
        array("I", plain.host_counts),
        plain.step,
    )

    assert decode_keyframe(words_of(fast)) == decode_keyframe(words_of(plain))


def test_arrays_are_decoded_without_python_lists():
    arrays = decode_keyframe_arrays(words_of(busy_keyframe()))

    assert arrays.counts.dtype == np.uint32
    assert arrays.hashes.tolist() == [2**64 - 1, 17]
    assert arrays.sequences["owner"].tolist() == [7, 8]
    assert arrays.sequences["priority"].tolist() == [0, -2]
    assert arrays.sequences["table_entries"].tolist() == [2, 2]
    assert arrays.tables.tolist() == [3, 4, 3, 5]


def test_an_empty_pool_is_all_zero():
    keyframe, strings = decode_keyframe(words_of(empty_keyframe(total_blocks=3, host_blocks=1)))

    assert (keyframe.counts, keyframe.host_counts, strings) == ([0, 0, 0], [0], {})


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_keyframe_cut_short_is_refused(cut):
    with pytest.raises(KeyframeDamagedError, match=r"says it has|too short"):
        decode_keyframe(words_of(busy_keyframe())[:-cut])


def test_another_keyframe_version_is_named():
    words = words_of(busy_keyframe()).copy()
    words[0] = 9

    with pytest.raises(KeyframeDamagedError, match="version 9"):
        decode_keyframe(words)
