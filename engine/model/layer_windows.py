"""Which layers of a model attend to a sliding window, and which to all positions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerWindows:
    """At most one of the two is given; with neither, every layer attends to all positions.

    Attributes:
        of_all_layers: How many positions a token attends to in every layer, its own included.
        of_some_layers: The same, where other layers attend to all positions; since a block holds
            a token's keys of all layers, no block may then be given back.
    """

    of_all_layers: int | None = None
    of_some_layers: int | None = None

    @property
    def are_mixed(self) -> bool:
        """Whether some layers have the window and some attend to all positions."""
        return self.of_some_layers is not None
