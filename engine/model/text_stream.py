"""Turn generated tokens into text as they come, never showing half a character."""

import codecs
from collections.abc import Callable


class TextStream:
    """Reads one sequence's tokens. A character is given when its last byte is there."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the text that this token completes; "" while a character is unfinished."""
        return self._decoder.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        """Return what an unfinished character leaves at the end: U+FFFD, or nothing."""
        return self._decoder.decode(b"", final=True)
