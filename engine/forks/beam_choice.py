"""Choose with which tokens a beam search goes on: pure, of numbers alone."""

from collections.abc import Sequence
from typing import NamedTuple

from engine.runner import Candidate


class Extension(NamedTuple):
    """A beam with one more token; `parent` is the place of the beam it extends."""

    total: float
    parent: int
    token_id: int
    logprob: float


class BeamChoice(NamedTuple):
    """What a step makes of the beams, best first."""

    going_on: list[Extension]
    ended: list[Extension]


def choose(
    totals: Sequence[float],
    candidates: Sequence[Sequence[Candidate]],
    *,
    width: int,
    stop_ids: frozenset[int],
) -> BeamChoice:
    """Choose the `width` best extensions that go on, and those that end on the way.

    An extension by a stop token counts only among the `width` best of all: else it would be
    complete with a score at which it could not have gone on. Where stop tokens leave fewer than
    `width` beams, all of them count, so that a search never ends with too few answers.

    Args:
        totals: Sum of the log-probabilities of each beam.
        candidates: Of each beam, twice `width` of them, best first.
    """
    extensions = [
        Extension(totals[parent] + logprob, parent, token_id, logprob)
        for parent, row in enumerate(candidates)
        for token_id, logprob in row
    ]
    extensions.sort(key=lambda extension: -extension.total)  # stable: beams in order, best first
    going_on = [e for e in extensions if e.token_id not in stop_ids][:width]
    eligible = extensions[:width] if len(going_on) == width else extensions
    return BeamChoice(going_on, [e for e in eligible if e.token_id in stop_ids])
