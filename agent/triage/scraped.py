"""The facts of an engine that is known by its metrics page alone; pure.

Such a page tells no owners and no wait causes. What can be concluded is concluded here, each with
its condition; what cannot stays None, and `Facts.missing` says why. `docs/triage.md` lists it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.scraped.window import Floats, ScrapedWindow
from agent.triage.causes import CAPACITY
from agent.triage.facts import (
    BookFacts,
    Facts,
    OwnedBound,
    Past,
    PoolFacts,
    QueueFacts,
    RunFacts,
    StepFacts,
    TelemetryFacts,
    TrafficFacts,
)
from agent.triage.thresholds import Thresholds

# So little of the pool left that hardly any prompt fits, whoever waits.
FULL_RATIO: Final = 0.02
LEAST_READINGS: Final = 3  # of a count that does not change, to be taken for a limit
NO_OWNERS: Final = "the page names no owners of blocks"
ONE_LOOK: Final = "one look alone tells no rates; two are needed since the engine's start"
NO_CAUSES: Final = "the page does not tell blocks, batch and step budget apart"


@dataclass(frozen=True, slots=True)
class Limits:
    """What somebody states of an engine beside its page; None: take what the page says."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None


@dataclass(frozen=True, slots=True)
class Scraped:
    """What facts are made of.

    Attributes:
        past: The engine's own past; None, with the reason, where there is none.
        slow_ratio: Time between tokens over that of the past at the same batch and context.
    """

    window: ScrapedWindow
    run: RunFacts
    telemetry: TelemetryFacts
    limits: Limits = Limits()
    past: Past | None = None
    no_past: str = ""
    slow_ratio: float | None = None


def scraped_facts(scraped: Scraped, thresholds: Thresholds | None = None) -> Facts:
    """Return what may be known of the window."""
    window, limits = scraped.window, thresholds or Thresholds()
    cap = _cap(window, scraped.limits, limits)
    missing = {"books": NO_OWNERS, "wait_causes": NO_CAUSES}
    if scraped.past is None:
        missing["past"] = scraped.no_past
    if np.isnan(window.usage).all():
        missing["pool"] = "the page does not tell how full the pool is"
    steps = _steps(window, scraped.slow_ratio) if len(window.t_ns) > 1 else None
    if steps is None:
        missing["rollups"] = ONE_LOOK
    elif steps.recomputed_tokens is None:
        missing["recomputed_tokens"] = "the page does not count tokens computed again"
    return Facts(
        start_ns=int(window.t_ns[0]),
        end_ns=max(int(window.t_ns[-1]), int(window.t_ns[0]) + 1),
        run=scraped.run,
        pool=_pool(window),
        queue=_queue(window, cap),
        steps=steps,
        traffic=TrafficFacts(
            arrived=None,
            admitted=_sum(window, "admitted"),
            finished=_sum(window, "finished"),
            cancelled=None,
            rejected={"": _sum(window, "rejected")} if _sum(window, "rejected") else {},
            mean_prompt_tokens=_mean_prompt(window),
        ),
        books=BookFacts(window.seconds, beyond_bound=_beyond_bound(window, scraped.limits)),
        telemetry=scraped.telemetry,
        waits=_waits(window, cap, limits, has_past=scraped.past is not None),
        latencies=window.latencies,
        past=scraped.past,
        missing=missing,
        waits_are_inferred=True,
        since_start=window.since_start,
    )


def _last(values: Floats) -> float | None:
    told = values[~np.isnan(values)]
    return float(told[-1]) if len(told) else None


def _sum(window: ScrapedWindow, name: str) -> int:
    return int(np.nansum(window.counted[name]))


def _pool(window: ScrapedWindow) -> PoolFacts | None:
    if np.isnan(window.usage).all():
        return None
    active = _last(window.active)
    return PoolFacts(
        total=window.total_blocks,
        first_total=window.total_blocks,
        active=None if active is None else int(active),
        cached=None,
        free=None,
        available_ratio=float(1 - np.nanmean(window.usage)),
    )


@dataclass(frozen=True, slots=True)
class _Cap:
    """How many sequences may run."""

    limit: int
    is_guess: bool


def _cap(window: ScrapedWindow, given: Limits, thresholds: Thresholds) -> _Cap | None:
    """Return the limit as stated, else the count that ran unchanging while others waited."""
    stated = given.max_num_seqs or window.stated.max_num_seqs
    if stated is not None:
        return _Cap(stated, is_guess=False)
    running = window.running
    is_steady = len(running) >= LEAST_READINGS and running[0] > 0 and (running == running[0]).all()
    others_wait = (_for_capacity(window) > 0).all()
    has_room = (1 - window.usage > thresholds.scarce_ratio).all()
    if is_steady and others_wait and has_room and _moved(window).any():
        return _Cap(int(running[0]), is_guess=True)
    return None


def _queue(window: ScrapedWindow, cap: _Cap | None) -> QueueFacts | None:
    running, waiting = _last(window.running), _last(window.waiting)
    if running is None or waiting is None:
        return None
    return QueueFacts(
        waiting=int(waiting),
        running=int(running),
        live=int(running + waiting),
        max_batch=None if cap is None else cap.limit,
        max_batch_is_guess=cap is not None and cap.is_guess,
    )


def _moved(window: ScrapedWindow) -> np.ndarray:
    """Return for each reading whether anything was computed since the one before."""
    counts = [window.counted[name] for name in ("steps", "prefill_tokens", "decode_tokens")]
    return np.asarray(np.nansum(counts, axis=0) > 0)


def _steps(window: ScrapedWindow, slow_ratio: float | None) -> StepFacts:
    tokens = window.latencies.get("inter_token")
    seconds = None if tokens is None else tokens.sum / tokens.count * _sum(window, "steps")
    recomputed = window.counted["recomputed_tokens"]
    return StepFacts(
        num_steps=_sum(window, "steps"),
        compute_seconds=seconds,
        prefill_tokens=_sum(window, "prefill_tokens"),
        decode_tokens=_sum(window, "decode_tokens"),
        recomputed_tokens=None if np.isnan(recomputed).all() else int(np.nansum(recomputed)),
        preempted=_sum(window, "preempted"),
        since_step_seconds=_still_seconds(window),
        slow_ratio=slow_ratio,
        expected_seconds=seconds / slow_ratio if slow_ratio and seconds is not None else None,
    )


def _still_seconds(window: ScrapedWindow) -> float:
    """Return for how long nothing was computed though sequences were live, up to the end."""
    live = window.running + window.waiting
    known = _known(window)
    still_from = len(live) - 1
    moved = _moved(window)
    while still_from > 0 and live[still_from] > 0 and known[still_from] and not moved[still_from]:
        still_from -= 1
    return float(window.t_ns[-1] - window.t_ns[still_from]) / 1e9


def _known(window: ScrapedWindow) -> np.ndarray:
    """Return for each look whether it is known what moved since the one before."""
    return ~np.isnan(window.counted["decode_tokens"]) | ~np.isnan(window.counted["steps"])


def _mean_prompt(window: ScrapedWindow) -> float | None:
    admitted = _sum(window, "admitted")
    tokens = _sum(window, "prefill_tokens") + _sum(window, "prefix_hit_tokens")
    return tokens / admitted if admitted else None


def _for_capacity(window: ScrapedWindow) -> Floats:
    return np.maximum(window.waiting - np.nan_to_num(window.deferred), 0.0)


def _waits(
    window: ScrapedWindow, cap: _Cap | None, thresholds: Thresholds, *, has_past: bool
) -> dict[str, float]:
    """Return waiting by cause, in sequence-seconds: each reading stands for the time up to it."""
    lengths = np.where(_known(window), np.diff(window.t_ns, prepend=window.t_ns[0]), 0)[1:] / 1e9
    sums = {
        _cause(window, cap, thresholds, has_past=has_past): _for_capacity(window)[1:],
        "deferred": np.nan_to_num(window.deferred)[1:],
    }
    seconds = {cause: float(np.nansum(counts * lengths)) for cause, counts in sums.items()}
    return {cause: value for cause, value in seconds.items() if value > 0}


def _cause(
    window: ScrapedWindow, cap: _Cap | None, thresholds: Thresholds, *, has_past: bool
) -> str:
    """Return what those who wait for capacity wait for.

    Blocks, if the pool is nearly full and sequences had to give theirs back; or if it is quite
    full; or if it is nearly full and the engine's past says that it usually is not. A place in the
    batch, if all are taken. Otherwise nobody can say.
    """
    available = float(1 - np.nanmean(window.usage)) if not np.isnan(window.usage).all() else 1.0
    is_scarce = available <= thresholds.scarce_ratio
    if is_scarce and _sum(window, "preempted"):
        return "pool"
    if cap is not None and (_last(window.running) or 0) >= cap.limit:
        return "batch_slots"
    if available <= FULL_RATIO or (is_scarce and has_past):
        return "pool"
    return CAPACITY[0]


def _beyond_bound(window: ScrapedWindow, given: Limits) -> OwnedBound | None:
    """Return what is held beyond what those who run can own, if it is more."""
    stated = window.stated
    length = given.max_model_len or stated.max_model_len
    held, first = _last(window.active), float(window.active[0])
    running, waiting = _last(window.running), _last(window.waiting)
    if length is None or not stated.block_size or held is None or running is None:
        return None
    bound = OwnedBound(
        held=int(held),
        first_held=int(held if np.isnan(first) else first),
        running=int(running),
        most_each=-(-length // stated.block_size),
        no_proof=stated.no_bound or ("requests wait, and may hold blocks" if waiting else ""),
    )
    return bound if bound.held > bound.most else None
