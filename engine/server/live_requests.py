"""The requests that the engine works on, by the number it gave each, and who reads their tokens.

A request is one prompt; it may have several samples, each of which ends by itself. The engine names
its first sequence, the root; events carry the root, the sample's place, and the sample's own
sequence.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from engine.admission import Rejection
from engine.runner import NO_TOKEN
from engine.sampling_params import SamplingParams
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason

# Ends after which a sample has a text; any other end is the end of the whole request.
GOOD_ENDS: Final = frozenset({FinishReason.STOP, FinishReason.LENGTH})


@dataclass(frozen=True, slots=True)
class Refused:
    """That the engine did not serve a request, and when its client may come back."""

    rejection: Rejection
    retry_after_seconds: int


class LiveRequest:
    """One submitted prompt, as the event loop sees it.

    Attributes:
        index: Of the prompt within its API request.
        root: The engine's number of it, known once the engine has answered.
        seq_ids: The sequence of each sample that has had a token, by its place.
        refused: Set before the event that says REJECTED.
    """

    __slots__ = ("events", "index", "num_open", "refused", "root", "seq_ids")

    def __init__(
        self, index: int, events: "asyncio.Queue[RequestEvent]", *, num_answers: int = 1
    ) -> None:
        self.index = index
        self.events = events
        self.root = 0
        self.seq_ids: dict[int, int] = {}
        self.num_open = num_answers  # touched by the engine's thread alone
        self.refused: Refused | None = None

    def put(self, event: TokenEvent) -> None:
        """Hand over an event, on the event loop."""
        if event.token_id >= 0:
            self.seq_ids[event.index] = event.seq_id
        self.events.put_nowait(RequestEvent(self, event))


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An event and the request to which it belongs."""

    request: LiveRequest
    event: TokenEvent


class LiveRequests:
    """Routes events to the requests that still want them; the engine's thread alone uses it."""

    def __init__(self) -> None:
        self._by_root: dict[int, LiveRequest] = {}

    def add(self, request: LiveRequest, root: int) -> None:
        """Expect events of a request that the engine took."""
        request.root = root
        self._by_root[root] = request

    def route(self, event: TokenEvent) -> LiveRequest | None:
        """Return whose event it is, and forget a request with its last."""
        root = event.root or event.seq_id
        request = self._by_root.get(root)
        reason = event.finish_reason
        if request is not None and reason is not None:
            if reason in GOOD_ENDS:
                self.sample_ended(request)
            else:
                del self._by_root[root]
        return request

    def sample_ended(self, request: LiveRequest) -> None:
        """Count the end of one sample, and forget the request with its last."""
        request.num_open -= 1
        if request.num_open <= 0:
            self._by_root.pop(request.root, None)

    def holds(self, request: LiveRequest) -> bool:
        """Return whether events of a request are still expected."""
        return request.root in self._by_root

    def drop(self, request: LiveRequest) -> bool:
        """Forget a request; False if it has ended by itself."""
        return self._by_root.pop(request.root, None) is not None

    def end_all(self, reason: FinishReason) -> list[RequestEvent]:
        """Forget every request; return an end for each."""
        ends = [
            RequestEvent(request, TokenEvent(root, NO_TOKEN, reason, root))
            for root, request in self._by_root.items()
        ]
        self._by_root.clear()
        return ends


def num_answers(sampling: SamplingParams) -> int:
    """Return how many samples of a request will each have an end of their own."""
    return sampling.n if sampling.beam_width else sampling.num_sequences
