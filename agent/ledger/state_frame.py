"""A frame for stored state: a JSON head and named arrays in one checked, compressed blob.

Layout: version u8, CRC32 of the payload u32, size of the payload u32, then a zstd frame of the
payload: size of the head u32, the head (JSON; it lists the arrays), the arrays' bytes in order.
"""

import json
import zlib
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from agent.errors import StateError

VERSION: Final = 1
LEVEL: Final = 1  # state is mostly small or incompressible; speed counts
MAX_PAYLOAD_BYTES: Final = 1 << 30
_HEAD: Final = Struct("<BII")
_DTYPES: Final = frozenset({"|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f8"})


class Frame(NamedTuple):
    """What a frame holds."""

    values: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


def encode_frame(values: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return a blob of JSON values and arrays of any shape."""
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    head = json.dumps({"values": values, "arrays": listed}, separators=(",", ":")).encode()
    payload = b"".join(
        (len(head).to_bytes(4, "little"), head, *(array.tobytes() for array in arrays.values()))
    )
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(payload)
    return _HEAD.pack(VERSION, zlib.crc32(payload), len(payload)) + packed


def decode_frame(blob: bytes) -> Frame:
    """Read a frame back; its arrays are copies.

    Raises:
        StateError: It is damaged or of another version.
    """
    payload = _payload(blob)
    try:
        size = int.from_bytes(payload[:4], "little")
        head = json.loads(payload[4 : 4 + size])
        arrays, at = {}, 4 + size
        for name, dtype, shape in head["arrays"]:
            if dtype not in _DTYPES:
                raise StateError(f"state array {name} is of type {dtype}")
            count = int(np.prod(shape, dtype=np.int64))
            array = np.frombuffer(payload, dtype, count, at).reshape(shape).copy()
            arrays[name] = array
            at += array.nbytes
        return Frame(head["values"], arrays)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise StateError(f"a stored state contradicts itself: {error}") from error


def _payload(blob: bytes) -> bytes:
    if len(blob) < _HEAD.size:
        raise StateError(f"a state of {len(blob)} bytes is too short for its head")
    version, crc, size = _HEAD.unpack_from(blob)
    if version != VERSION:
        raise StateError(f"state version {version}, this kvpulse reads {VERSION}")
    frame = memoryview(blob)[_HEAD.size :]
    try:
        if size > MAX_PAYLOAD_BYTES or zstandard.frame_content_size(frame) != size:
            raise StateError(f"a state claims {size} bytes and its frame another size")
        payload = zstandard.ZstdDecompressor().decompress(frame, max_output_size=max(size, 1))
    except zstandard.ZstdError as error:
        raise StateError(f"a stored state is damaged: {error}") from error
    if zlib.crc32(payload) != crc:
        raise StateError("a stored state does not match its checksum")
    return payload
