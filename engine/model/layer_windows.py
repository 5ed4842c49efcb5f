"""Which layers of a model attend to a sliding window, and how layers lie together in blocks."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

MOST_PADDED: Final = 1.25  # a kind of layers this many times the other still makes one group


@dataclass(frozen=True, slots=True)
class LayerWindows:
    """At most one of the two is given; with neither, every layer attends to all positions.

    Attributes:
        of_all_layers: How many positions a token attends to in every layer, its own included.
        of_some_layers: The same, where other layers attend to all positions.
    """

    of_all_layers: int | None = None
    of_some_layers: int | None = None

    @property
    def are_mixed(self) -> bool:
        """Whether some layers have the window and some attend to all positions."""
        return self.of_some_layers is not None


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers whose keys and values of a token lie in one block.

    Attributes:
        layers: Their indices in the model; the i-th lies in the i-th part of a block.
        window: What they all attend to; None for all positions.
    """

    layers: tuple[int, ...]
    window: int | None


def kv_groups(
    num_layers: int, *, full_layers: Collection[int], window: int | None
) -> tuple[KvGroup, ...]:
    """Sort a model's layers into groups, those without a window first; the first is the largest.

    A group has as many layers as there are of the rarer kind, or of the other where that is hardly
    more, so that all blocks are of one size; what the last group of a kind lacks is left empty.

    Source: vLLM's `_get_kv_cache_groups_uniform_page_size` (vllm/v1/core/kv_cache_utils.py), which
    called 1.25 times as many hardly more, and later 1.5.
    """
    if window is None or not full_layers:
        return (KvGroup(tuple(range(num_layers)), window),)
    full = [layer for layer in range(num_layers) if layer in full_layers]
    windowed = [layer for layer in range(num_layers) if layer not in full_layers]
    fewer, more = sorted((len(full), len(windowed)))
    size = more if more <= MOST_PADDED * fewer else fewer
    return (*_cut(full, size, None), *_cut(windowed, size, window))


def _cut(layers: list[int], size: int, window: int | None) -> Iterator[KvGroup]:
    for start in range(0, len(layers), size):
        yield KvGroup(tuple(layers[start : start + size]), window)
