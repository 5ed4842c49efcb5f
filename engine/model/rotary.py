"""Rotary position embedding: pairs of neighbouring numbers turned by an angle per position.

Source: Su et al. 2021 (arXiv:2104.09864) section 3.4.2, in its interleaved form; Dubey et al. 2024
(arXiv:2407.21783) for the frequencies of Llama 3.1.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class RopeScaling(Protocol):
    """Changes the frequencies that a model was first trained with, for longer contexts."""

    def scale(self, frequencies: Tensor) -> Tensor:
        """Return new frequencies, [num_pairs] fp64 radians a position."""
        ...


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every position counts as 1 / factor of one. Chen et al. 2023 (arXiv:2306.15595)."""

    factor: float

    def scale(self, frequencies: Tensor) -> Tensor:
        """Divide by the factor."""
        return frequencies / self.factor


@dataclass(frozen=True, slots=True)
class FactorScaling:
    """Each frequency has a factor of its own, as a GGUF file of Llama 3.1 states them."""

    factors: tuple[float, ...]

    def scale(self, frequencies: Tensor) -> Tensor:
        """Divide each by its factor."""
        return frequencies / torch.tensor(self.factors, dtype=frequencies.dtype)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Slows long wavelengths down, keeps short ones, and blends in between.

    Attributes:
        factor: By how much the slow ones are slowed.
        low_freq_factor: Wavelengths above original_context / this are slow.
        high_freq_factor: Wavelengths below original_context / this are kept.
        original_context: Positions that the model was first trained with.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def scale(self, frequencies: Tensor) -> Tensor:
        """Slow, blend or keep each frequency by its wavelength."""
        turns = self.original_context * frequencies / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        kept = ((turns - self.low_freq_factor) / width).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


def rotary_table(
    head_dim: int, max_context: int, *, base: float, scaling: RopeScaling | None = None
) -> Tensor:
    """Return a unit number per position and pair: [max_context, head_dim / 2] complex64."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64)
    frequencies = base ** (-pairs / head_dim)
    if scaling is not None:
        frequencies = scaling.scale(frequencies)
    angles = torch.outer(torch.arange(max_context, dtype=torch.float64), frequencies)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate_in_place(heads: Tensor, rotation: Tensor) -> None:
    """Rotate neighbouring pairs of each head.

    Args:
        heads: [num_tokens, num_heads, head_dim]; changed in place.
        rotation: [num_tokens, 1, head_dim / 2] complex64.
    """
    num_tokens, num_heads, head_dim = heads.shape
    pairs = heads.view(num_tokens, num_heads, head_dim // 2, 2)
    if heads.dtype == torch.float32:
        torch.view_as_complex(pairs).mul_(rotation)
    else:
        rotated = torch.view_as_complex(pairs.float()) * rotation
        pairs.copy_(torch.view_as_real(rotated))
