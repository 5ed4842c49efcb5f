"""The numbers that an engine's sequences bear, in order of their coming."""


class SequenceNumbers:
    """Gives out 1, 2, 3, …: to requests when they arrive, and to children when they split off."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def take(self) -> int:
        """Return the next number."""
        self.last += 1
        return self.last
