"""How fast an engine's steps were: fitted to recorded ones, never read from its settings.

    step = base + prefill x prefill_tokens + decode x decode_tokens + context x context_tokens

Least squares of relative errors, since a long step's noise is longer; no coefficient below 0.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.explain.errors import CannotBeExplained
from engine.simulation.cost_model import CostModel
from kvpulse.window_recording import WindowRecording

FEWEST_STEPS: Final = 200
NUM_REWEIGHTED: Final = 3
MOST_NOISE: Final = 0.9
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepSpeeds:
    """What a step costs, in ns.

    Attributes:
        noise_ratio: Standard deviation of the relative error that the fit leaves.
        num_steps: Steps that it was fitted to.
    """

    base_ns: float
    prefill_token_ns: float
    decode_token_ns: float
    context_token_ns: float
    noise_ratio: float
    num_steps: int


def fit_speeds(recording: WindowRecording) -> StepSpeeds:
    """Fit the cost of a step to those of a recording.

    Raises:
        CannotBeExplained: There are too few of them.
    """
    steps = recording.steps
    took = steps["total_ns"].astype(np.float64)
    some = took > 0
    if some.sum() < FEWEST_STEPS:
        raise CannotBeExplained(
            f"only {int(some.sum())} steps were recorded, needed are {FEWEST_STEPS}:"
            " the speeds cannot be fitted; take a longer window"
        )
    names = ("prefill_tokens", "decode_tokens", "context_tokens")
    columns = [np.ones(len(took)), *(steps[name].astype(np.float64) for name in names)]
    terms, took = np.stack(columns, axis=1)[some], took[some]
    expected = np.full(len(took), took.mean())
    for _ in range(NUM_REWEIGHTED):
        costs = _least_squares(terms / expected[:, None], took / expected)
        expected = np.maximum(terms @ costs, 1.0)
    noise = float(np.std(took / expected))
    base, prefill, decode, context = costs.tolist()
    return StepSpeeds(base, prefill, decode, context, min(noise, MOST_NOISE), len(took))


def cost_model(prefill: StepSpeeds, decode: StepSpeeds) -> CostModel:
    """Return the cost of steps with one engine's prefill and another's decoding.

    What a step costs without any token counts as decoding: nearly every step decodes.
    """
    return CostModel(
        base_ns=round(decode.base_ns),
        prefill_token_ns=prefill.prefill_token_ns,
        decode_sequence_ns=decode.decode_token_ns,
        context_token_ns=decode.context_token_ns,
        sample_ns=0,
        noise_ratio=decode.noise_ratio,
    )


def _least_squares(terms: Floats, values: Floats) -> Floats:
    """Return coefficients of at least 0: the most negative one is left out until none is."""
    scale = np.sqrt((terms * terms).mean(axis=0))
    kept = [int(column) for column in np.flatnonzero(scale > 0)]
    costs = np.zeros(terms.shape[1])
    while kept:
        found = np.linalg.lstsq(terms[:, kept] / scale[kept], values, rcond=None)[0]
        if found.min() >= 0:
            costs[kept] = found / scale[kept]
            break
        kept.pop(int(found.argmin()))
    return costs
