"""Book the waiting behind a named blocker to that blocker, to the nanosecond.

Nearly every `wait` record names another blocker than the one before, for all that stand in line at
once. So blockers are followed, each with how many stand behind it, and not pairs of two.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.ledger.request_state import RequestState

Live = dict[int, RequestState]


@dataclass(slots=True)
class Blockers:
    """How many sequences name each blocker, and up to when their waiting is booked to it."""

    behind: dict[int, int] = field(default_factory=dict)
    settled_ns: dict[int, int] = field(default_factory=dict)

    def move(self, live: Live, before: int, after: int, number: int, t_ns: int) -> None:
        """Let some sequences stand behind another blocker; 0 is nobody."""
        behind, settled_ns = self.behind, self.settled_ns
        if before:
            if settled_ns[before] != t_ns:
                self._settle(live, before, t_ns)
            behind[before] -= number
        if after:
            standing = behind.get(after)
            if not standing:
                behind[after], settled_ns[after] = number, t_ns
                return
            if settled_ns[after] != t_ns:
                self._settle(live, after, t_ns)
            behind[after] = standing + number

    def settle(self, live: Live, t_ns: int) -> None:
        """Book all waiting behind somebody up to a time."""
        self.behind = {blocker: number for blocker, number in self.behind.items() if number}
        self.settled_ns = {blocker: self.settled_ns[blocker] for blocker in self.behind}
        for blocker in self.behind:
            self._settle(live, blocker, t_ns)

    def end(self, live: Live, blocker: int, t_ns: int) -> None:
        """Book what is left to a blocker that ends now; later waiting is nobody's."""
        if blocker in self.behind:
            self._settle(live, blocker, t_ns)

    def _settle(self, live: Live, blocker: int, t_ns: int) -> None:
        state = live.get(blocker)
        if state is not None:
            passed_ns = t_ns - self.settled_ns[blocker]
            state.blocked_others_ns += self.behind[blocker] * passed_ns
        self.settled_ns[blocker] = t_ns

    def booked(self, live: Live, t_ns: int) -> dict[int, int]:
        """Return what is booked to each blocker that lives, up to a time; nothing changes."""
        return {
            blocker: live[blocker].blocked_others_ns + number * (t_ns - self.settled_ns[blocker])
            for blocker, number in self.behind.items()
            if blocker in live
        }

    def recount(self, states: Iterable[RequestState], t_ns: int) -> None:
        """Count anew over the live sequences, as after a keyframe or a restart."""
        self.behind.clear()
        for state in states:
            if state.blocker:
                self.behind[state.blocker] = self.behind.get(state.blocker, 0) + 1
        self.settled_ns = dict.fromkeys(self.behind, t_ns)
