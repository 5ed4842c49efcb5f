"""What may differ between two recordings: five groups, each taken from one or the other."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.explain.replay import FirstTokenTimes, replay
from engine.explain.settings import EngineSettings, settings_of
from engine.explain.speeds import StepSpeeds, cost_model, fit_speeds
from engine.explain.traffic import Contents, timed_requests
from engine.simulation.trace_requests import TimedRequest
from kvpulse.window_recording import WindowRecording

Ints = npt.NDArray[np.int64]


class Group(IntEnum):
    """A bit of a choice: 0 takes it from the first recording, 1 from the second."""

    LENGTHS = 0
    ARRIVALS = 1
    PREFILL_SPEED = 2
    DECODE_SPEED = 3
    SETTINGS = 4


NUM_CHOICES: Final = 1 << len(Group)
ALL_FIRST: Final = 0
ALL_SECOND: Final = NUM_CHOICES - 1
TRAFFIC: Final = (Group.LENGTHS, Group.ARRIVALS)
LABELS: Final = {
    Group.LENGTHS: "lengths and shared beginnings",
    Group.ARRIVALS: "arrival rate",
    Group.PREFILL_SPEED: "prefill speed",
    Group.DECODE_SPEED: "decode speed",
    Group.SETTINGS: "pool and scheduler settings",
}


@dataclass(frozen=True, slots=True)
class ReplayedSide:
    """What one recording brings into a replay."""

    contents: Contents
    arrivals_ns: Ints
    speeds: StepSpeeds
    settings: EngineSettings

    @classmethod
    def of(cls, recording: WindowRecording, window_ns: int) -> "ReplayedSide":
        """Take it out of the first `window_ns` of a recording.

        Raises:
            CannotBeExplained: The recording is too short, or its engine cannot be replayed.
        """
        settings = settings_of(recording.fingerprint)
        arrived = recording.requests["arrived_ns"]
        return cls(
            Contents.of(recording, settings.config.block_size, window_ns),
            arrived[: int(np.searchsorted(arrived, window_ns))],
            fit_speeds(recording),
            settings,
        )


@dataclass(slots=True)
class Replays:
    """The replays of two sides' groups, each run once however often it is asked for."""

    first: ReplayedSide
    second: ReplayedSide
    num_run: int = 0
    _known: dict[int, FirstTokenTimes] = field(default_factory=dict)
    _requests: dict[tuple[int, int, int], list[TimedRequest]] = field(default_factory=dict)

    def times(self, choice: int) -> FirstTokenTimes:
        """Return the first tokens of one choice of groups."""
        choice = self._told_apart(choice)
        if choice not in self._known:
            self._known[choice] = self._run(choice)
            self.num_run += 1
        return self._known[choice]

    def _told_apart(self, choice: int) -> int:
        """Take what is equal on both sides from the first: such choices are one replay."""
        if self.first.settings == self.second.settings:
            choice &= ~(1 << Group.SETTINGS)
        return choice

    def _side(self, choice: int, group: Group) -> ReplayedSide:
        return self.second if choice >> group & 1 else self.first

    def _run(self, choice: int) -> FirstTokenTimes:
        settings = self._side(choice, Group.SETTINGS).settings
        prefill = self._side(choice, Group.PREFILL_SPEED).speeds
        decode = self._side(choice, Group.DECODE_SPEED).speeds
        block_size = settings.config.block_size
        key = (choice >> Group.LENGTHS & 1, choice >> Group.ARRIVALS & 1, block_size)
        if key not in self._requests:
            contents = self._side(choice, Group.LENGTHS).contents
            arrivals = self._side(choice, Group.ARRIVALS).arrivals_ns
            self._requests[key] = timed_requests(contents, arrivals, block_size)
        return replay(self._requests[key], cost_model(prefill, decode), settings)
