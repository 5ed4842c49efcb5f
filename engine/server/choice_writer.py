"""Write one choice of an answer: token events of one sample in, pieces of text out."""

from engine.server.openai_replies import Choice
from engine.server.stop_strings import StopStrings
from engine.server.text_codec import TextStream
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason


class ChoiceWriter:
    """Reads the tokens of one sample, until its end or a stop string.

    Attributes:
        index: Of the choice, over all prompts and samples of the API request.
        stopped_early: By a stop string, which the engine does not know.
        num_tokens: Tokens read so far, the model's end token included.
        logprob: Sum of their log-probabilities, where the engine states them.
    """

    def __init__(self, index: int, text: TextStream, stops: StopStrings) -> None:
        self.index = index
        self.finished = False
        self.stopped_early = False
        self.num_tokens = 0
        self.logprob = 0.0
        self._text = text
        self._stops = stops

    @property
    def mean_logprob(self) -> float:
        """Return the log-probability per token, by which the best of several is chosen."""
        return self.logprob / self.num_tokens if self.num_tokens else float("-inf")

    def push(self, event: TokenEvent) -> Choice | None:
        """Take one event that is no failure; return the piece to send, if there is one."""
        if self.finished:
            return None
        reason = event.finish_reason
        text = self._read_token(event)
        if self.stopped_early:
            return self._end(text, "stop")
        if reason is not None:
            tail = "" if reason is FinishReason.STOP else self._text.flush()
            cut = self._stops.push(tail)
            return self._end(text + cut.text + self._stops.flush(), reason.name.lower())
        return Choice(self.index, text, None) if text else None

    def _read_token(self, event: TokenEvent) -> str:
        if event.token_id < 0:
            return ""
        self.num_tokens += 1
        self.logprob += event.logprob
        if event.finish_reason is FinishReason.STOP:
            return ""  # the model's end token is not text
        cut = self._stops.push(self._text.push(event.token_id))
        self.stopped_early = cut.stopped
        return cut.text

    def _end(self, text: str, reason: str) -> Choice:
        self.finished = True
        return Choice(self.index, text, reason)
