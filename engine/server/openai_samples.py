"""How many samples of each prompt a request asks for, and whether by sampling or by beams.

`n` and `best_of` are OpenAI's fields; `use_beam_search`, `length_penalty` and `early_stopping` are
vLLM's, `beam_width` is ours: without it the search is as wide as the answers asked for.
"""

from dataclasses import dataclass
from typing import Final

from engine.server.openai_errors import InvalidFieldError
from engine.server.openai_fields import Fields

MAX_SAMPLES: Final = 1 << 16  # far above what any batch holds; the server's own limit comes later
MAX_LENGTH_PENALTY: Final = 10.0


@dataclass(frozen=True, slots=True)
class SampleAsk:
    """Samples of each prompt.

    Attributes:
        n: Choices that the client gets.
        best_of: Samples that those are the best of; equal to `n` without beams.
        beam_width: 0 without beams.
    """

    n: int = 1
    best_of: int = 1
    beam_width: int = 0
    length_penalty: float = 1.0
    early_stopping: bool = False

    @property
    def num_sequences(self) -> int:
        """Return how many sequences of a prompt run beside each other."""
        return self.beam_width or self.best_of

    @property
    def num_answers(self) -> int:
        """Return how many samples of a prompt come to an end of their own."""
        return self.n if self.beam_width else self.best_of


def parse_samples(fields: Fields, *, is_chat: bool, stream: bool) -> SampleAsk:
    """Check the fields about samples."""
    n = _count(fields, "n") or 1
    best_of = _best_of(fields, n, is_chat=is_chat)
    beams = fields.flag("use_beam_search")
    if not beams and fields.raw("beam_width") is not None:
        raise InvalidFieldError("beam_width needs use_beam_search: true.", param="beam_width")
    if stream and beams:
        message = (
            "Beam search cannot stream: which beams are the best is known only at the end. "
            "Set stream to false."
        )
        raise InvalidFieldError(message, param="stream")
    if stream and best_of > n:
        message = (
            f"best_of {best_of} of n {n} cannot stream: which samples are the best is known only "
            "at the end. Set stream to false, or best_of to n."
        )
        raise InvalidFieldError(message, param="stream")
    return SampleAsk(
        n=n,
        best_of=best_of,
        beam_width=_beam_width(fields, best_of) if beams else 0,
        length_penalty=fields.number(
            "length_penalty", default=1.0, low=-MAX_LENGTH_PENALTY, high=MAX_LENGTH_PENALTY
        ),
        early_stopping=fields.flag("early_stopping"),
    )


def refuse_more_than(limit: int, samples: SampleAsk) -> None:
    """Raise InvalidFieldError for more sequences of a prompt than a server takes."""
    if samples.num_sequences > limit:
        name = "beam_width" if samples.beam_width else "best_of"
        name = name if samples.num_sequences > samples.n else "n"
        raise InvalidFieldError(
            f"{name} must be at most {limit} here, got {samples.num_sequences}. "
            f"(parameter={name}, value={samples.num_sequences})",
            param=name,
        )


def _best_of(fields: Fields, n: int, *, is_chat: bool) -> int:
    best_of = _count(fields, "best_of") or n
    if is_chat and best_of != n:
        message = "best_of is a field of completions; a chat takes n."
        raise InvalidFieldError(message, param="best_of")
    if best_of < n:
        message = f"best_of must be at least n, got {best_of} and {n}."
        raise InvalidFieldError(message, param="best_of")
    return best_of


def _beam_width(fields: Fields, best_of: int) -> int:
    width = _count(fields, "beam_width") or best_of
    if width < best_of:
        message = f"beam_width must be at least n, got {width} and {best_of}."
        raise InvalidFieldError(message, param="beam_width")
    return width


def _count(fields: Fields, name: str) -> int | None:
    value = fields.integer(name, at_least=1)
    if value is not None and value > MAX_SAMPLES:
        message = f"{name} must be at most {MAX_SAMPLES}, got {value}."
        raise InvalidFieldError(message, param=name)
    return value
