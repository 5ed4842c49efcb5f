"""Steps of the engine's wall clock, told from the pairs of clocks that it states.

A run is dated by the first pair alone, so a step moves no stored row and no duration. What it moves
is what other machines and logs call the same moment; so it is told.

Linux slews both clocks alike: the offset between them changes by steps only. What changes it by
less than `LEAST_STEP_NS` from one pair to the next is drift, or a thread that was held up between
reading the one clock and the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np

from agent.ledger.delta import ClockStep
from agent.ledger.event_columns import LONGEST_SILENCE_NS, EventColumns, Ints
from agent.ledger.intervals import SECOND_NS
from kvpulse.events import HeartbeatWord, Kind
from kvpulse.stream_values import ClockPair

LEAST_STEP_NS: Final = SECOND_NS // 2
MOST_TOLD: Final = 1_000  # of one run; further ones are counted
MOST_CLOCK_NS: Final = 1 << 62  # the year 2116: beyond it a clock is damaged, not set
HEARTBEAT: Final = int(Kind.HEARTBEAT)
NUM_WORDS: Final = len(HeartbeatWord)
_WORDS: Final = np.array(
    [
        HeartbeatWord.WALL_LOW,
        HeartbeatWord.WALL_HIGH,
        HeartbeatWord.MONOTONIC_LOW,
        HeartbeatWord.MONOTONIC_HIGH,
    ]
)


class Offsets(NamedTuple):
    """Wall minus monotonic time of some pairs of clocks, and when each was stated."""

    t_ns: Ints
    offset_ns: Ints


@dataclass(slots=True)
class ClockWatch:
    """How far the two clocks are apart, and the steps that were seen."""

    offset_ns: int | None = None  # of the newest pair; None: none yet
    num_steps: int = 0
    newest: ClockStep | None = None
    _new: list[ClockStep] = field(default_factory=list)

    @classmethod
    def resume(cls, state: Mapping[str, int], run_offset_ns: int) -> Self:
        """Go on from a stored state; one from before clocks were compared has the run's offset."""
        at_ns, step_ns = state.get("clock_step_at", 0), state.get("clock_step", 0)
        return cls(
            state.get("clock_offset", run_offset_ns),
            state.get("clock_steps", 0),
            ClockStep(at_ns, step_ns) if step_ns else None,
        )

    def state(self) -> dict[str, int]:
        """Return what `resume` needs, without the steps that are not taken yet."""
        state = {"clock_steps": self.num_steps}
        if self.offset_ns is not None:
            state["clock_offset"] = self.offset_ns
        if self.newest is not None:
            state |= {"clock_step_at": self.newest.t_ns, "clock_step": self.newest.step_ns}
        return state

    def meet_segment(self, clock: ClockPair, t_ns: int) -> bool:
        """Take in a segment's pair of clocks after an engine time; tell whether there was a step.

        The step is dated by the pair itself, but not before what is known already.
        """
        t_ns = min(max(t_ns, clock.monotonic_ns), t_ns + LONGEST_SILENCE_NS) if t_ns else 0
        before = self.num_steps
        if min(clock) >= 0 and max(clock) < MOST_CLOCK_NS:
            offset_ns = clock.wall_ns - clock.monotonic_ns
            self._follow(Offsets(np.array([t_ns]), np.array([offset_ns])))
        return self.num_steps > before

    def follow(self, events: EventColumns) -> None:
        """Take in the pairs that heartbeats state."""
        offsets = heartbeat_offsets(events)
        if len(offsets.t_ns):
            self._follow(offsets)

    def _follow(self, offsets: Offsets) -> None:
        t_ns, offset_ns = offsets
        before = int(offset_ns[0]) if self.offset_ns is None else self.offset_ns
        changes = np.diff(offset_ns, prepend=before)
        self.offset_ns = int(offset_ns[-1])
        for place in np.flatnonzero(np.abs(changes) >= LEAST_STEP_NS).tolist():
            self.newest = ClockStep(int(t_ns[place]), int(changes[place]))
            self.num_steps += 1
            if self.num_steps <= MOST_TOLD:
                self._new.append(self.newest)

    def take(self) -> tuple[ClockStep, ...]:
        """Return the steps since the last take."""
        new, self._new = tuple(self._new), []
        return new


def heartbeat_offsets(events: EventColumns) -> Offsets:
    """Return what the heartbeats of a stretch say; a damaged one says nothing."""
    beats = np.flatnonzero((events.kind == HEARTBEAT) & (events.n == NUM_WORDS))
    places = events.first[beats] - events.lane_base
    beats = beats[(places >= 0) & (places + NUM_WORDS <= len(events.lane))]
    places = events.first[beats] - events.lane_base
    words = events.lane[places[:, None] + _WORDS].astype(np.uint64)
    wall = words[:, 0] | words[:, 1] << np.uint64(32)
    monotonic = words[:, 2] | words[:, 3] << np.uint64(32)
    sound = np.maximum(wall, monotonic) < MOST_CLOCK_NS
    offsets = wall[sound].astype(np.int64) - monotonic[sound].astype(np.int64)
    return Offsets(events.t_ns[beats[sound]], offsets)
