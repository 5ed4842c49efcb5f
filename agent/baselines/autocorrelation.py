"""How long a series remembers: the integrated autocorrelation time.

tau = 1 + 2 * sum of the autocorrelations at lags 1 to M. So many neighbouring intervals carry as
much information as one independent value. M is the first lag of at least 5 tau: later ones add
noise only.

Source: Sokal, Monte Carlo Methods in Statistical Mechanics (1996), section 3.
"""

from typing import Final

import numpy as np

from agent.baselines.window_series import Bools, Floats

WINDOW_TAUS: Final = 5.0


def autocorrelation_time(values: Floats, is_counted: Bools) -> float:
    """Return tau in intervals, at least 1.

    Args:
        values: [num_intervals]; what is not counted is ignored.
        is_counted: [num_intervals]. Pairs with a missing end are left out, so that a gap neither
            joins its two sides nor ends the series.
    """
    num = int(is_counted.sum())
    if num < 3:
        return 1.0
    centred = np.where(is_counted, values, 0.0)
    centred = np.where(is_counted, centred - centred.sum() / num, 0.0)
    if not np.abs(centred).max() > 1e-12 * (np.abs(values[is_counted]).max() + 1e-300):
        return 1.0  # constant
    products = _lagged_sums(centred)
    pairs = np.maximum(np.round(_lagged_sums(is_counted.astype(np.float64))), 1.0)
    covariances = products / pairs
    taus = 1.0 + 2.0 * np.cumsum(covariances[1:] / covariances[0])
    lags = np.arange(1, len(taus) + 1)
    closed = np.flatnonzero(lags >= WINDOW_TAUS * np.maximum(taus, 1.0))
    last = int(closed[0]) if len(closed) else len(taus) - 1
    return max(1.0, float(taus[last]))


def _lagged_sums(values: Floats) -> Floats:
    """Return sum of values[i] * values[i + lag] for lags from 0 to half the length."""
    size = 1 << (2 * len(values) - 1).bit_length()
    spectrum = np.fft.rfft(values, size)
    sums: Floats = np.fft.irfft(spectrum * np.conj(spectrum), size)
    return sums[: len(values) // 2 + 1]
