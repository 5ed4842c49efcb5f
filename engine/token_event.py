"""One generated token, as the engine hands it out."""

from typing import NamedTuple

from kvpulse.events import FinishReason


class TokenEvent(NamedTuple):
    """A sequence's next token, and why it was its last, if it was.

    A sequence that somebody ends has no event of its own; whoever ended it knows.
    """

    seq_id: int
    token_id: int
    finish_reason: FinishReason | None
