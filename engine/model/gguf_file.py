"""Read GGUF files: metadata, and tensors as fp32 arrays, straight from a memory map.

Reads version 2 and 3, little-endian, with tensors of type F32, F16, Q8_0 and Q4_1. Every length in
the file is held against the bytes that are left before it is believed: a file that lies raises
`GgufError` and costs no more memory than an honest one of its size.

Source: the GGUF specification (ggml, docs/gguf.md) and ggml-quants for the block layouts.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_TENSORS = 65_536
MAX_METADATA_KEYS = 65_536
MAX_NAME_BYTES = 65_535
MAX_DIMENSIONS = 4
MAX_ARRAY_DEPTH = 4
DEFAULT_ALIGNMENT = 32

# GGUF value types: the fixed-size ones by struct code, then the two that carry a length.
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9

MetadataValue = int | float | bool | str | NDArray[np.generic] | list["MetadataValue"]


class GgufError(EngineError):
    """A file is not a GGUF file, is damaged, or holds what this reader does not know."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class TensorType:
    """How one GGUF tensor type packs its elements."""

    name: str
    elements_per_block: int
    bytes_per_block: int


TENSOR_TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    3: TensorType("Q4_1", 32, 20),
    8: TensorType("Q8_0", 32, 34),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is in row-major order, slowest dimension first."""

    name: str
    shape: tuple[int, ...]
    packing: TensorType
    offset: int
    num_bytes: int


class GgufFile:
    """An open GGUF file; a context manager. Arrays returned are copies and outlive it."""

    def __init__(self, path: Path) -> None:
        """Map the file and read its metadata and tensor table.

        Raises:
            GgufError: It is not a whole, readable GGUF file.
        """
        self.path = path
        try:
            with path.open("rb") as source:
                self._map = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise GgufError(path, f"cannot be read: {error}") from error
        try:
            header = _HeaderReader(path, self._map)
            self.metadata = header.metadata
            self.tensors = header.tensors
        except BaseException:
            self._map.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Return a tensor as a new fp32 array in row-major shape.

        Raises:
            GgufError: No tensor has that name.
        """
        info = self.tensors.get(name)
        if info is None:
            raise GgufError(self.path, f"has no tensor {name!r}")
        # A copy, because a view would pin the map and make `close` fail.
        packed = np.frombuffer(self._map[info.offset : info.offset + info.num_bytes], np.uint8)
        return dequantise(packed, info.packing.name).reshape(info.shape)


def dequantise(packed: NDArray[np.uint8], type_name: str) -> NDArray[np.float32]:
    """Unpack one tensor's bytes to a flat fp32 array, bit for bit as ggml does."""
    if type_name == "F32":
        return packed.view("<f4").astype(np.float32)
    if type_name == "F16":
        return packed.view("<f2").astype(np.float32)
    if type_name == "Q8_0":
        return _dequantise_q8_0(packed)
    if type_name == "Q4_1":
        return _dequantise_q4_1(packed)
    raise ValueError(f"no unpacking for tensor type {type_name!r}")


def _dequantise_q8_0(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """[scale f16, 32 x int8] a block: weight = scale * q."""
    blocks = packed.reshape(-1, 34)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    weights: NDArray[np.float32] = blocks[:, 2:].view(np.int8).astype(np.float32)
    weights *= scale
    return weights.reshape(-1)


def _dequantise_q4_1(packed: NDArray[np.uint8]) -> NDArray[np.float32]:
    """[scale f16, minimum f16, 16 bytes] a block; the 16 low nibbles come first."""
    blocks = packed.reshape(-1, 20)
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    minimum = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    weights = np.empty((len(blocks), 32), np.float32)
    weights[:, :16] = blocks[:, 4:] & 0x0F
    weights[:, 16:] = blocks[:, 4:] >> 4
    weights *= scale
    weights += minimum
    return weights.reshape(-1)


class _HeaderReader:
    """Reads the front of the file, from magic to tensor table; every step is bounded."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data, self._size, self._at = path, data, len(data), 0
        if self._take(4, "the magic") != MAGIC:
            raise self._error("is not a GGUF file (wrong magic)")
        version = self._number("I", "the version")
        if version not in VERSIONS:
            raise self._error(f"has GGUF version {version}; this reader knows {VERSIONS}")
        num_tensors = self._bounded("tensors", MAX_TENSORS)
        num_keys = self._bounded("metadata keys", MAX_METADATA_KEYS)
        self.metadata = self._read_metadata(num_keys)
        table = [self._read_tensor_row() for _ in range(num_tensors)]
        self.tensors = self._place_tensors(table)

    def _error(self, problem: str) -> GgufError:
        return GgufError(self._path, problem)

    def _take(self, num_bytes: int, what: str) -> bytes:
        if num_bytes > self._size - self._at:
            raise self._error(
                f"ends inside {what}: {num_bytes} bytes wanted at {self._at} of {self._size}"
            )
        taken = self._data[self._at : self._at + num_bytes]
        self._at += num_bytes
        return taken

    def _number(self, code: str, what: str) -> int:
        (number,) = struct.unpack("<" + code, self._take(struct.calcsize("<" + code), what))
        return int(number)

    def _bounded(self, what: str, limit: int) -> int:
        number = self._number("Q", f"the number of {what}")
        if number > limit:
            raise self._error(f"claims {number} {what}; more than {limit} are not believed")
        return number

    def _string(self, what: str, limit: int | None = None) -> str:
        num_bytes = self._number("Q", f"the length of {what}")
        if limit is not None and num_bytes > limit:
            raise self._error(f"has {what} of {num_bytes} bytes; the limit is {limit}")
        try:
            return self._take(num_bytes, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"has {what} that is not UTF-8") from error

    def _read_metadata(self, num_keys: int) -> dict[str, MetadataValue]:
        metadata: dict[str, MetadataValue] = {}
        for _ in range(num_keys):
            key = self._string("a metadata key", MAX_NAME_BYTES)
            if key in metadata:
                raise self._error(f"has the metadata key {key!r} twice")
            metadata[key] = self._value(self._number("I", f"the type of {key!r}"), key, 0)
        return metadata

    def _value(self, value_type: int, key: str, depth: int) -> MetadataValue:
        if value_type in SCALARS:
            code = "<" + SCALARS[value_type]
            (scalar,) = struct.unpack(code, self._take(struct.calcsize(code), repr(key)))
            value: int | float | bool = scalar
            return value
        if value_type == STRING:
            return self._string(repr(key))
        if value_type == ARRAY:
            return self._array(key, depth + 1)
        raise self._error(f"has metadata {key!r} of unknown type {value_type}")

    def _array(self, key: str, depth: int) -> MetadataValue:
        if depth > MAX_ARRAY_DEPTH:
            raise self._error(f"nests arrays in {key!r} deeper than {MAX_ARRAY_DEPTH}")
        element_type = self._number("I", f"the element type of {key!r}")
        length = self._number("Q", f"the length of {key!r}")
        if element_type in SCALARS:
            dtype = np.dtype(SCALARS[element_type]).newbyteorder("<")
            packed = self._take(length * dtype.itemsize, repr(key))
            return np.frombuffer(packed, dtype)
        # A string or an array needs at least eight bytes, whatever it holds.
        if length * 8 > self._size - self._at:
            raise self._error(f"claims {length} elements in {key!r}, more than the file can hold")
        return [self._value(element_type, key, depth) for _ in range(length)]

    def _read_tensor_row(self) -> TensorInfo:
        name = self._string("a tensor name", MAX_NAME_BYTES)
        num_dimensions = self._number("I", f"the dimensions of {name!r}")
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self._error(f"gives tensor {name!r} {num_dimensions} dimensions")
        sizes = [self._number("Q", f"the shape of {name!r}") for _ in range(num_dimensions)]
        type_id = self._number("I", f"the type of {name!r}")
        tensor_type = TENSOR_TYPES.get(type_id)
        if tensor_type is None:
            known = ", ".join(known.name for known in TENSOR_TYPES.values())
            raise self._error(f"has tensor {name!r} of type {type_id}; this reader knows {known}")
        if sizes[0] % tensor_type.elements_per_block:
            raise self._error(f"has rows of {sizes[0]} elements in {tensor_type.name} {name!r}")
        num_blocks = math.prod(sizes) // tensor_type.elements_per_block
        offset = self._number("Q", f"the offset of {name!r}")
        num_bytes = num_blocks * tensor_type.bytes_per_block
        return TensorInfo(name, tuple(reversed(sizes)), tensor_type, offset, num_bytes)

    def _place_tensors(self, table: list[TensorInfo]) -> dict[str, TensorInfo]:
        """Turn offsets into file positions, and refuse what does not fit."""
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._error(f"has general.alignment {alignment!r}, not a power of two")
        start = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for row in table:
            if row.name in tensors:
                raise self._error(f"has the tensor {row.name!r} twice")
            if row.offset % alignment or start + row.offset + row.num_bytes > self._size:
                raise self._error(
                    f"puts tensor {row.name!r} at {start + row.offset} with {row.num_bytes} bytes; "
                    f"the file has {self._size} and aligns to {alignment}"
                )
            tensors[row.name] = TensorInfo(
                row.name, row.shape, row.packing, start + row.offset, row.num_bytes
            )
        return tensors
