"""The formats that keys and values can be kept in: what a token weighs, and how it is coded.

Sizes, for one token of one layer with `num_kv_heads` heads of `head_dim`, keys and values:

    fp32, fp16, bf16, fp8   2 x num_kv_heads x head_dim x (4, 2, 2, 1) bytes
    int8                    2 x num_kv_heads x (head_dim + 4) bytes: an fp32 scale per head

`encode` turns the model's numbers into what is stored, `decode` turns them back.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import torch
from torch import Tensor

from engine.errors import EngineError

SCALE_DTYPE: Final = torch.float32
INT8_LARGEST: Final = 127.0
FP8_LARGEST: Final = 448.0


class KvFormatError(EngineError):
    """A KV format has an unknown name, or this torch lacks its type."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown KV format {name!r}; known here: {', '.join(KV_FORMATS)}")
        self.name = name


class Encoded(NamedTuple):
    """What is stored of some vectors: `codes` [..., head_dim], and `scales` [...] fp32 if any."""

    codes: Tensor
    scales: Tensor | None


class Codec(Protocol):
    """Turns vectors into what is stored of them, and back."""

    def encode(self, vectors: Tensor, dtype: torch.dtype) -> Encoded:
        """Code vectors, [..., head_dim] in any float type."""

    def decode(self, codes: Tensor, scales: Tensor | None, out: Tensor) -> None:
        """Write the numbers that the codes stand for to `out`, shaped as `codes`."""


class CastCodec:
    """Rounds each number to the stored type, saturating where that type has no infinity."""

    def encode(self, vectors: Tensor, dtype: torch.dtype) -> Encoded:
        """Round to `dtype`."""
        if dtype.itemsize == 1:
            # float8_e4m3fn has no infinity: beyond its largest number the cast gives NaN.
            vectors = vectors.clamp(-FP8_LARGEST, FP8_LARGEST)
        elif dtype == torch.float16 and vectors.dtype != torch.float16:
            largest = torch.finfo(dtype).max
            vectors = vectors.clamp(-largest, largest)
        return Encoded(vectors.to(dtype), None)

    def decode(self, codes: Tensor, scales: Tensor | None, out: Tensor) -> None:
        """Widen or round to the type of `out`."""
        out.copy_(codes)


class ScaledCodec:
    """Divides each token's head by its largest magnitude / 127 and rounds to int8."""

    def encode(self, vectors: Tensor, dtype: torch.dtype) -> Encoded:
        """Scale and round to the nearest of -127..127."""
        numbers = vectors.to(SCALE_DTYPE)
        scales = numbers.abs().amax(-1).div_(INT8_LARGEST)
        # All zeros have the scale 0 and decode to zeros, whatever they were divided by.
        divisors = torch.where(scales > 0, scales, 1.0)
        codes = (numbers / divisors[..., None]).round_().clamp_(-INT8_LARGEST, INT8_LARGEST)
        return Encoded(codes.to(dtype), scales)

    def decode(self, codes: Tensor, scales: Tensor | None, out: Tensor) -> None:
        """Multiply codes by their scales."""
        assert scales is not None
        if out.dtype == scales.dtype:
            torch.mul(codes, scales[..., None], out=out)
        else:
            out.copy_(codes * scales[..., None])


@dataclass(frozen=True, slots=True)
class KvFormat:
    """One way to keep keys and values.

    Attributes:
        dtype: Type of a stored number.
        scale_bytes: Bytes of the scale of one token's head; 0 for a format without.
    """

    name: str
    dtype: torch.dtype
    codec: Codec
    scale_bytes: int = 0

    def bytes_per_vector(self, length: int) -> int:
        """Return the bytes of one stored vector of `length` numbers with its scale, if any."""
        return length * self.dtype.itemsize + self.scale_bytes


def _known_formats() -> dict[str, KvFormat]:
    formats = [
        KvFormat("fp32", torch.float32, CastCodec()),
        KvFormat("fp16", torch.float16, CastCodec()),
        KvFormat("bf16", torch.bfloat16, CastCodec()),
        KvFormat("int8", torch.int8, ScaledCodec(), scale_bytes=SCALE_DTYPE.itemsize),
    ]
    if hasattr(torch, "float8_e4m3fn"):
        formats.append(KvFormat("fp8", torch.float8_e4m3fn, CastCodec()))
    return {known.name: known for known in formats}


KV_FORMATS: Final = _known_formats()
_UNSCALED_BY_DTYPE: Final = {
    known.dtype: known for known in KV_FORMATS.values() if not known.scale_bytes
}


def kv_format(name: str) -> KvFormat:
    """Return the format of that name.

    Raises:
        KvFormatError: No such format here.
    """
    try:
        return KV_FORMATS[name]
    except KeyError:
        raise KvFormatError(name) from None


def format_of_dtype(dtype: torch.dtype) -> KvFormat:
    """Return the format that keeps numbers of this type as they are."""
    return _UNSCALED_BY_DTYPE[dtype]
