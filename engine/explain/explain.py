"""Explain a difference of mean time to first token between two recordings.

1. Both are replayed as they were, with fitted speeds. A replay that does not come to the recorded
   figure within 15 % proves that the simulator lacks something: it cannot be explained.
2. Is the change of the replays beyond chance, and beyond a tenth? If not: no change.
3. Every choice of groups is replayed; each group gets its Shapley value.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from engine.explain.errors import CannotBeExplained
from engine.explain.explanation import Answer, Change, Explanation, Pair, Share
from engine.explain.groups import (
    ALL_FIRST,
    ALL_SECOND,
    LABELS,
    NUM_CHOICES,
    Group,
    ReplayedSide,
    Replays,
)
from engine.explain.replay import FirstTokenTimes
from engine.explain.shapley import shapley_matrix
from engine.explain.uncertainty import STUDENT_T, BlockSums, Floats, block_sums, drawn_means
from kvpulse.window_recording import UNKNOWN, WindowRecording

LEAST_FIDELITY: Final = 0.85
FLOOR_RATIO: Final = 0.10  # a smaller change never counts, as in a comparison
FEWEST_REQUESTS: Final = 200
LEAST_SECONDS: Final = 1e-12
NOBODY: Final = Pair(None, None)
OnProgress = Callable[[int, int], None]


def explain(
    first: WindowRecording,
    second: WindowRecording,
    *,
    on_progress: OnProgress = lambda done, of: None,
) -> Explanation:
    """Return why `second` is not as `first`; windows of different length are cut to the shorter.

    Args:
        on_progress: Called with how many choices of groups are replayed, and of how many.
    """
    window_ns = min(first.window_ns, second.window_ns)
    try:
        replays = Replays(_side(first, window_ns), _side(second, window_ns))
    except CannotBeExplained as error:
        return _refused(window_ns, str(error))
    return _Explaining((first, second), replays, window_ns).explanation(on_progress)


class _Explaining:
    def __init__(
        self,
        recordings: tuple[WindowRecording, WindowRecording],
        replays: Replays,
        window_ns: int,
    ) -> None:
        self._replays = replays
        self._window_ns = window_ns
        means = [block_sums(_recorded(one), window_ns).mean for one in recordings]
        self._recorded = Pair(*means)

    def explanation(self, on_progress: OnProgress) -> Explanation:
        ends = [self._sums(ALL_FIRST), self._sums(ALL_SECOND)]
        replayed = Pair(ends[0].mean, ends[1].mean)
        fidelity = Pair(
            _fidelity(self._recorded.first, replayed.first),
            _fidelity(self._recorded.second, replayed.second),
        )
        low = [value for value in (fidelity.first, fidelity.second) if not _is_faithful(value)]
        if low or replayed.first is None:
            return self._answer(
                Answer.CANNOT_BE_EXPLAINED, replayed, fidelity, why_not=_why_unfaithful(fidelity)
            )
        change = _change(drawn_means(ends, [False, True]) @ [-1.0, 1.0], _change_of_means(ends))
        if not change.is_beyond_chance or abs(change.seconds) < FLOOR_RATIO * replayed.first:
            return self._answer(Answer.NO_CHANGE, replayed, fidelity, change=change)
        return self._answer(
            Answer.EXPLAINED,
            replayed,
            fidelity,
            change=change,
            shares=self._shares(change, on_progress),
        )

    def _shares(self, change: Change, on_progress: OnProgress) -> tuple[Share, ...]:
        sums = []
        for choice in range(NUM_CHOICES):
            sums.append(self._sums(choice))
            on_progress(choice + 1, NUM_CHOICES)
        is_second = [bool(choice >> Group.ARRIVALS & 1) for choice in range(NUM_CHOICES)]
        weights = shapley_matrix(len(Group))
        shares = np.array([one.mean for one in sums], np.float64) @ weights
        drawn = drawn_means(sums, is_second) @ weights
        return tuple(
            _share(group, _change(drawn[:, group], float(shares[group])), change) for group in Group
        )

    def _sums(self, choice: int) -> BlockSums:
        return block_sums(self._replays.times(choice), self._window_ns)

    def _answer(
        self,
        answer: Answer,
        replayed: Pair,
        fidelity: Pair,
        *,
        change: Change | None = None,
        shares: tuple[Share, ...] = (),
        why_not: str = "",
    ) -> Explanation:
        sides = (self._replays.first, self._replays.second)
        notes = dict.fromkeys(s.settings.not_replayed for s in sides if s.settings.not_replayed)
        return Explanation(
            answer,
            self._window_ns / 1e9,
            self._recorded,
            replayed,
            fidelity,
            change,
            shares,
            tuple(side.speeds for side in sides),
            self._replays.num_run,
            why_not,
            tuple(notes),
        )


def _change_of_means(ends: list[BlockSums]) -> float:
    """Return the change of mean TTFT between two replays."""
    return (ends[1].mean or 0.0) - (ends[0].mean or 0.0)


def _share(group: Group, its: Change, whole: Change) -> Share:
    if abs(its.seconds) < LEAST_SECONDS:  # the same on both sides: what is left is rounding
        its = Change(0.0, 0.0, 0.0)
    return Share(group.name.lower(), LABELS[group], its, its.seconds / whole.seconds)


def _side(recording: WindowRecording, window_ns: int) -> ReplayedSide:
    if recording.num_lost:
        raise CannotBeExplained(
            f"{recording.num_lost} events of a window are lost: a replay of what is left would be"
            " another engine's; choose a window without a gap"
        )
    side = ReplayedSide.of(recording, window_ns)
    if len(side.arrivals_ns) < FEWEST_REQUESTS:
        raise CannotBeExplained(
            f"only {len(side.arrivals_ns)} requests arrived in the {window_ns / 1e9:.0f} s that are"
            f" explained, needed are {FEWEST_REQUESTS}; take a longer window"
        )
    return side


def _recorded(recording: WindowRecording) -> FirstTokenTimes:
    arrived, first = recording.requests["arrived_ns"], recording.requests["first_token_ns"]
    had_one = first != UNKNOWN
    return FirstTokenTimes(arrived[had_one], first[had_one] - arrived[had_one])


def _fidelity(recorded: float | None, replayed: float | None) -> float | None:
    if not recorded or replayed is None:
        return None
    return max(0.0, 1 - abs(replayed - recorded) / recorded)


def _is_faithful(fidelity: float | None) -> bool:
    return fidelity is not None and fidelity >= LEAST_FIDELITY


def _change(drawn: Floats, seconds: float) -> Change:
    margin = STUDENT_T * float(np.std(drawn, ddof=1))
    return Change(seconds, seconds - margin, seconds + margin)


def _why_unfaithful(fidelity: Pair) -> str:
    told = [
        f"the {which} side comes to {value:.0%} of its own mean TTFT"
        if value is not None
        else f"the {which} side has no first token to compare with"
        for which, value in (("first", fidelity.first), ("second", fidelity.second))
        if not _is_faithful(value)
    ]
    return (
        f"the replay of {' and that of '.join(told)} (fidelity; needed is {LEAST_FIDELITY:.0%}):"
        " something acts on this engine that the simulator does not know"
    )


def _refused(window_ns: int, why: str) -> Explanation:
    return Explanation(
        Answer.CANNOT_BE_EXPLAINED, window_ns / 1e9, NOBODY, NOBODY, NOBODY, why_not=why
    )
