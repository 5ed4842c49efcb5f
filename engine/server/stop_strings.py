"""Cut generated text at the first stop string, without ever sending a part of one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """Text that may be sent now, and whether a stop string was met."""

    text: str
    stopped: bool


class StopStrings:
    """Holds back the tail of the text while it may still become a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> Cut:
        """Take new text; return what may be sent."""
        if not self._stops:
            return Cut(text, stopped=False)
        pending = self._held + text
        found = [at for stop in self._stops if (at := pending.find(stop)) >= 0]
        if found:
            self._held = ""
            return Cut(pending[: min(found)], stopped=True)
        keep = self._partial_stop(pending)
        self._held = pending[len(pending) - keep :]
        return Cut(pending[: len(pending) - keep], stopped=False)

    def flush(self) -> str:
        """Return what was held back, once no more text will come."""
        held, self._held = self._held, ""
        return held

    def _partial_stop(self, text: str) -> int:
        """Return the length of the longest tail of `text` that begins a stop string."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
