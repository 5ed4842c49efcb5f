"""Record what a paged KV cache does, block by block, without slowing the engine."""

from typing import TYPE_CHECKING, Any

from kvpulse.emitter_choice import emitter
from kvpulse.keyframe import Keyframe, KeyframeSequence
from kvpulse.recorder import Recorder
from kvpulse.shadow_pool import ShadowPool

if TYPE_CHECKING:
    from kvpulse.journal_listing import list_streams
    from kvpulse.reader import StreamReader
    from kvpulse.stream_values import Batch, Gap, Position, StreamStatus

__all__ = [
    "Batch",
    "Gap",
    "Keyframe",
    "KeyframeSequence",
    "Position",
    "Recorder",
    "ShadowPool",
    "StreamReader",
    "StreamStatus",
    "emitter",
    "list_streams",
]

_READER_SIDE = {
    "Batch": "kvpulse.stream_values",
    "Gap": "kvpulse.stream_values",
    "Position": "kvpulse.stream_values",
    "StreamReader": "kvpulse.reader",
    "StreamStatus": "kvpulse.stream_values",
    "list_streams": "kvpulse.journal_listing",
}


def __getattr__(name: str) -> Any:
    """Import the reading side when it is asked for: an engine that records needs no numpy."""
    if name not in _READER_SIDE:
        raise AttributeError(f"module 'kvpulse' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_READER_SIDE[name]), name)
