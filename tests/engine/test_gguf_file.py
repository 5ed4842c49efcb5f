"""Reading GGUF files: honest ones bit for bit, hostile ones as clear errors."""

import struct
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.gguf_file import GgufError, GgufFile, dequantise
from tests.engine.factories_gguf import (
    ARRAY,
    FLOAT32,
    INT32,
    STRING,
    UINT32,
    gguf_bytes,
    string,
    tensor_row,
    value,
)
from tests.engine.factories_model import smollm2_path

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8


def an_honest_file():
    numbers = np.arange(12, dtype="<f4")
    return gguf_bytes(
        metadata=[
            ("general.architecture", STRING, "llama"),
            ("llama.block_count", UINT32, 3),
            ("llama.eps", FLOAT32, 0.5),
            ("tokens", ARRAY, (STRING, ["a", "né", "日本"])),
            ("kinds", ARRAY, (INT32, [1, 3, -1])),
            ("nested", ARRAY, (ARRAY, [(UINT32, [1, 2]), (UINT32, [3])])),
        ],
        tensors=[
            ("plain", [4, 3], F32, numbers.tobytes()),
            ("half", [4], F16, np.array([1, -2, 0.5, 3], "<f2").tobytes()),
            ("q8", [32], Q8_0, struct.pack("<e32b", 0.5, *range(-16, 16))),
            ("q4", [32], Q4_1, struct.pack("<ee16B", 2.0, -1.0, *range(0, 256, 16))),
        ],
    )


def opened(tmp_path, data):
    path = tmp_path / "file.gguf"
    path.write_bytes(data)
    return GgufFile(path)


def test_metadata_of_every_kind_is_read(tmp_path):
    with opened(tmp_path, an_honest_file()) as file:
        metadata = file.metadata

    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == 3
    assert metadata["llama.eps"] == 0.5
    assert metadata["tokens"] == ["a", "né", "日本"]
    assert metadata["kinds"].tolist() == [1, 3, -1]
    assert [one.tolist() for one in metadata["nested"]] == [[1, 2], [3]]


def test_tensors_of_every_kind_are_unpacked(tmp_path):
    with opened(tmp_path, an_honest_file()) as file:
        tensors = {name: file.tensor(name) for name in file.tensors}

    assert tensors["plain"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert tensors["half"].tolist() == [1, -2, 0.5, 3]
    assert tensors["q8"].tolist() == [0.5 * q for q in range(-16, 16)]
    # Each byte holds (low nibble 0, high nibble i): sixteen times 0, then 0 to 15.
    assert tensors["q4"].tolist() == [-1.0] * 16 + [2.0 * q - 1.0 for q in range(16)]
    assert all(one.dtype == np.float32 for one in tensors.values())


@pytest.mark.parametrize("type_name", ["F16", "Q4_1", "Q8_0"])
def test_unpacking_equals_the_gguf_package_bit_for_bit(type_name):
    gguf = pytest.importorskip("gguf", reason="no gguf: make setup installs it")
    block_bytes = {"F16": 2, "Q4_1": 20, "Q8_0": 34}[type_name]
    packed = np.random.default_rng(5).integers(0, 256, (200, block_bytes)).astype(np.uint8)
    if type_name != "F16":
        # Keep the half-precision scale finite: a NaN equals nothing.
        packed[:, 1] &= 0x3F
        packed[:, 3] &= 0x3F

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = gguf.dequantize(packed, gguf.GGMLQuantizationType[type_name])

    got = dequantise(packed.reshape(-1), type_name)
    assert np.array_equal(got.view(np.uint32), expected.reshape(-1).view(np.uint32))


def test_an_unknown_tensor_is_a_clear_error(tmp_path):
    with opened(tmp_path, an_honest_file()) as file, pytest.raises(GgufError, match="'missing'"):
        file.tensor("missing")


def huge(count):
    return struct.pack("<Q", count)


HOSTILE = {
    "nothing at all": (b"", "cannot be read"),
    "another format": (b"PK\x03\x04" + bytes(60), "wrong magic"),
    "a version of tomorrow": (gguf_bytes(version=9), "version 9"),
    "more tensors than anybody has": (gguf_bytes(counts=(1 << 60, 0)), "not believed"),
    "more keys than anybody has": (gguf_bytes(counts=(0, 1 << 60)), "not believed"),
    "a key longer than the file": (
        gguf_bytes(counts=(0, 1))[:24] + huge(60_000),
        "ends inside a metadata key",
    ),
    "a key of a gigabyte": (gguf_bytes(counts=(0, 1))[:24] + huge(1 << 30), "the limit is"),
    "a key that is not UTF-8": (
        gguf_bytes(counts=(0, 1))[:24] + string(b"\xff\xfe") + value(UINT32, 1),
        "not UTF-8",
    ),
    "the same key twice": (gguf_bytes([("a", UINT32, 1), ("a", UINT32, 2)]), "'a' twice"),
    "an unknown value type": (
        gguf_bytes(counts=(0, 1))[:24] + string("a") + struct.pack("<I", 77),
        "unknown type 77",
    ),
    "an array longer than the file": (
        gguf_bytes(counts=(0, 1))[:24] + string("a") + struct.pack("<IIQ", ARRAY, UINT32, 1 << 40),
        "ends inside 'a'",
    ),
    "a list of strings longer than the file": (
        gguf_bytes(counts=(0, 1))[:24] + string("a") + struct.pack("<IIQ", ARRAY, STRING, 1 << 40),
        "more than the file can hold",
    ),
    "arrays nested without end": (
        gguf_bytes(counts=(0, 1))[:24]
        + string("a")
        + struct.pack("<I", ARRAY)
        + struct.pack("<IQ", ARRAY, 1) * 50,
        "deeper than",
    ),
    "an unknown tensor type": (
        gguf_bytes(counts=(1, 0))[:24] + tensor_row("t", [32], 14, 0),
        "of type 14",
    ),
    "no dimensions": (gguf_bytes(counts=(1, 0))[:24] + tensor_row("t", [], F32, 0), "0 dimensions"),
    "a row that breaks a block": (
        gguf_bytes(counts=(1, 0))[:24] + tensor_row("t", [33], Q8_0, 0),
        "rows of 33",
    ),
    "a tensor larger than the file": (
        gguf_bytes(counts=(1, 0))[:24] + tensor_row("t", [1 << 20, 1 << 20], F32, 0),
        "puts tensor 't'",
    ),
    "a tensor behind the end": (
        gguf_bytes(counts=(1, 0))[:24] + tensor_row("t", [4], F32, 1 << 40) + bytes(64),
        "puts tensor 't'",
    ),
    "a tensor out of line": (
        gguf_bytes(counts=(1, 0))[:24] + tensor_row("t", [4], F32, 3) + bytes(64),
        "aligns to 32",
    ),
    "the same tensor twice": (
        gguf_bytes(tensors=[("t", [1], F32, bytes(4)), ("t", [1], F32, bytes(4))]),
        "'t' twice",
    ),
    "an alignment of three": (gguf_bytes([("general.alignment", UINT32, 3)]), "power of two"),
    "an alignment of nought": (gguf_bytes([("general.alignment", UINT32, 0)]), "power of two"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_with_its_path_and_the_reason(case, tmp_path):
    data, reason = HOSTILE[case]

    with pytest.raises(GgufError, match=reason) as caught:
        opened(tmp_path, data)

    assert str(tmp_path) in str(caught.value)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    # Without the padding after the last tensor, which nobody reads.
    data = an_honest_file()[:-12]

    for length in range(len(data)):
        with pytest.raises(GgufError):
            opened(tmp_path, data[:length])


@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, len(an_honest_file()) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_file_or_an_error_and_no_bloat(place, byte, tmp_path_factory):
    data = bytearray(an_honest_file())
    data[place] = byte
    path = tmp_path_factory.mktemp("gguf") / "file.gguf"
    path.write_bytes(data)

    tracemalloc.start()
    try:
        with GgufFile(path) as file:
            for name in file.tensors:
                file.tensor(name)
    except GgufError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.model
@pytest.mark.slow
def test_all_of_smollm2_equals_the_gguf_package_bit_for_bit():
    gguf = pytest.importorskip("gguf", reason="no gguf: make setup installs it")
    path = smollm2_path()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}

    with GgufFile(path) as file:
        assert len(file.tensors) == 272
        assert set(file.tensors) == set(oracle)
        for name, tensor in oracle.items():
            expected = gguf.dequantize(tensor.data, tensor.tensor_type)
            got = file.tensor(name)
            assert got.shape == expected.shape, name
            assert np.array_equal(got.view(np.uint32), expected.view(np.uint32)), name
