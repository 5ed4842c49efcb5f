"""A `Recorder` whose hot path is C: the same methods, the same bytes, a fraction of the time.

Each of `HOT_METHODS` is the C function; it hands whatever is not plain to the Python method of the
same name, kept as `_python_<name>`. Everything else (rotation, keyframes, pauses, refusals) is the
Python code of `Recorder`, which finds the fields that both sides need in C.
"""

from array import array
from typing import ClassVar, Final

from kvpulse._emitter import HotPath
from kvpulse.emitter_choice import Emitter
from kvpulse.events import MAX_KINDS
from kvpulse.recorder import Recorder
from kvpulse.stream_state import Counts

HOT_METHODS: Final = (
    *("allocate", "share", "free", "copy_on_write", "cache", "evict", "swap_out", "swap_in"),
    *("allocate_failed", "hold", "wait", "admit", "reject", "prefix_hit", "preempt", "resume"),
    *("fork", "first_token", "finish", "step", "pool"),
)
HOT_FIELDS: Final = ("hot", "index", "word", "soft_limit", "soft_word", "piece")


class CompiledRecorder(Recorder):
    """Exists only where the extension was built; `Recorder.open` chooses it."""

    __slots__ = ()

    emitter: ClassVar[Emitter] = Emitter.C

    @staticmethod
    def _new_counts() -> Counts:
        """Return a zero for each kind, in memory that C counts in."""
        return array("Q", bytes(8 * MAX_KINDS))


for _name in HOT_METHODS:
    setattr(CompiledRecorder, f"_python_{_name}", getattr(Recorder, _name))
    setattr(CompiledRecorder, _name, getattr(HotPath, f"_c_{_name}"))
for _name in HOT_FIELDS:
    setattr(CompiledRecorder, f"_{_name}", getattr(HotPath, f"_c_{_name}"))
