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
    # Plain tuples, best first; equals stand in order of their beams.
    ranked = sorted(
        (-totals[parent] - logprob, parent, place)
        for parent, row in enumerate(candidates)
        for place, (_, logprob) in enumerate(row)
    )
    going_on: list[Extension] = []
    ended: list[Extension] = []
    num_eligible = 0
    for rank, (cost, parent, place) in enumerate(ranked):
        token_id, logprob = candidates[parent][place]
        extension = Extension(-cost, parent, token_id, logprob)
        if token_id in stop_ids:
            ended.append(extension)
            num_eligible += rank < width
            continue
        going_on.append(extension)
        if len(going_on) == width:
            return BeamChoice(going_on, ended[:num_eligible])
    return BeamChoice(going_on, ended)
