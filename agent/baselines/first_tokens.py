"""Where the time to first token went, request by request, as counters of a window's intervals.

TTFT = waits before the first admission, by cause + from that admission to the first token, exact
to the nanosecond (law 6 of docs/ledger.md). A request counts in the interval of its first token,
as it does in the histogram of TTFT; an interval in which the two do not agree in number (rows that
retention took, a request whose life spans a gap) is not known, and says nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Self

import numpy as np

from agent.baselines.window_series import BucketLines, Floats, Ints
from kvpulse.events import WaitCause

NUM_SPLIT: Final = "ttft_requests"
PART_COUNTERS: Final = (
    "ttft_pool_ns",
    "ttft_pool_behind_ns",
    "ttft_scheduler_ns",
    "ttft_quota_ns",
    "ttft_transfer_ns",
    "ttft_prefill_ns",
)
POOL_BEHIND: Final = WaitCause.POOL_BEHIND.name.lower()
FIRST_TOKEN_COUNTERS: Final = (NUM_SPLIT, *PART_COUNTERS)


class WaitedRequest(NamedTuple):
    """When a request arrived, ran and spoke, and its waits before it ran, all in ns."""

    arrived: int
    admitted: int
    first_token: int
    pool_class: int  # both causes of the class
    pool_behind: int  # of those
    scheduler: int
    quota: int
    transfer: int


class FirstTokens(NamedTuple):
    """Requests that had their first token in a window.

    Attributes:
        at_ns: [num_requests], wall time of the first token.
        parts_ns: [num_requests, len(PART_COUNTERS)]; each row sums to the request's TTFT.
    """

    at_ns: Ints
    parts_ns: Ints

    @classmethod
    def of(cls, requests: Iterable[WaitedRequest]) -> Self:
        """Split requests; one whose waits do not fill its time in the queue is left out."""
        rows = np.array(list(requests), np.int64).reshape(-1, len(WaitedRequest._fields))
        arrived, admitted, first_token, pool, behind, *waits = rows.T
        parts = np.stack([pool - behind, behind, *waits, first_token - admitted], axis=1)
        is_whole = (parts.sum(axis=1) == first_token - arrived) & (parts >= 0).all(axis=1)
        return cls(first_token[is_whole], parts[is_whole])


def split_counters(
    places: Ints, parts_ns: Ints, sampled: BucketLines, num_intervals: int
) -> Mapping[str, Floats]:
    """Sum requests by interval.

    Args:
        places: [num_requests], the interval of each first token, within the window.
        parts_ns: [num_requests, len(PART_COUNTERS)].
        sampled: The histograms of TTFT of the same window.

    Returns:
        `FIRST_TOKEN_COUNTERS`, [num_intervals] each; NaN in all of them where not every first
        token of the interval could be split.
    """
    num_split = np.bincount(places, minlength=num_intervals)
    num_sampled = np.bincount(sampled.interval, sampled.count, minlength=num_intervals)
    is_known = num_split == np.round(num_sampled).astype(np.int64)
    sums = np.zeros((num_intervals, len(PART_COUNTERS)), np.int64)
    np.add.at(sums, places, parts_ns)
    columns = dict(zip(PART_COUNTERS, sums.T, strict=True)) | {NUM_SPLIT: num_split}
    return {name: np.where(is_known, values, np.nan) for name, values in columns.items()}


def not_split(num_intervals: int) -> dict[str, Floats]:
    """Return the counters of a window of whose requests nothing is known."""
    return {name: np.full(num_intervals, np.nan) for name in FIRST_TOKEN_COUNTERS}
