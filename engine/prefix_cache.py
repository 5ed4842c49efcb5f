"""The names under which the scheduler knows an index of kept content."""

from engine.prefix_index.protocol import PrefixHit as PrefixHit
from engine.prefix_index.protocol import PrefixIndex as PrefixCache

__all__ = ["PrefixCache", "PrefixHit"]
