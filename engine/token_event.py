"""One generated token, as the engine hands it out."""

from typing import NamedTuple

from kvpulse.events import FinishReason


class TokenEvent(NamedTuple):
    """A sequence's next token, and why it was its last, if it was.

    A sequence that somebody ends has no event of its own; whoever ended it knows.

    Attributes:
        root: The number that `submit` gave the request; 0 stands for `seq_id` itself.
        index: Which of the request's samples it belongs to, from 0; of beams the rank.
        logprob: Natural log-probability of the token; 0.0 where nobody asked for it.
    """

    seq_id: int
    token_id: int
    finish_reason: FinishReason | None
    root: int = 0
    index: int = 0  # type: ignore[assignment]  # nobody asks a token for tuple.index
    logprob: float = 0.0
