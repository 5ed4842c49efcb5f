"""What passes in each second of a stretch while the request loop runs through it."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from agent.ledger.event_columns import Ints
from agent.ledger.intervals import Grid
from agent.ledger.request_state import CAUSE_LABELS, NUM_CAUSES
from agent.rollups.latency import Samples
from agent.rollups.scalars import COUNTERS, LATENCY_INDEX
from kvpulse.events import WAIT_CLASSES, WaitCause

COUNTER: Final = {name: i for i, name in enumerate(COUNTERS)}
_CLASS_COLUMN: Final = {
    int(cause): COUNTER[f"wait_{its}_ns"] for cause, its in WAIT_CLASSES.items()
}
ALL_CAUSES: Final = tuple(int(cause) for cause in WaitCause)
_AFTER: Final = COUNTER["wait_after_preempt_ns"]


class Gauges(NamedTuple):
    """What the request loop knows at a second's end."""

    running: int
    waiting: int
    limit_blocks: int
    swapped: int


@dataclass(slots=True)
class WaitCurve:
    """How many sequences wait for each cause, and the ns that they have waited."""

    waiting: list[int] = field(default_factory=lambda: [0] * NUM_CAUSES)
    settled_ns: list[int] = field(default_factory=lambda: [0] * NUM_CAUSES)
    after: int = 0  # of those waiting, how many were preempted
    after_settled_ns: int = 0
    accrued_ns: int = 0  # since the run (or the last gap) began

    def jump(self, t_ns: int) -> None:
        """Go to a time without accruing anything: what lies between is not known."""
        self.settled_ns = [t_ns] * NUM_CAUSES
        self.after_settled_ns = t_ns


@dataclass(slots=True)
class SecondSums:
    """Counters, gauges, labels and latencies by second; the loop moves on second by second."""

    grid: Grid
    curve: WaitCurve
    ends: list[int]
    counters: Ints
    second: int = 0
    now: list[int] = field(default_factory=lambda: [0] * len(COUNTERS))
    waited_ns: list[int] = field(default_factory=lambda: [0] * NUM_CAUSES)  # this second
    gauges: list[Gauges] = field(default_factory=list)
    labelled: list[dict[tuple[str, str | int], int]] = field(default_factory=list)
    samples: list[tuple[int, int, int, int]] = field(default_factory=list)

    @classmethod
    def over(cls, grid: Grid, curve: WaitCurve) -> "SecondSums":
        """Begin at the first second of a grid."""
        counters = np.zeros((len(grid), len(COUNTERS)), np.int64)
        labelled: list[dict[tuple[str, str | int], int]] = [{} for _ in range(len(grid))]
        return cls(grid, curve, grid.ends().tolist(), counters, labelled=labelled)

    def count(self, column: int, amount: int = 1) -> None:
        """Add to a counter of the present second."""
        self.now[column] += amount

    def label(self, family: str, label: str | int, amount: int = 1) -> None:
        """Add to a labelled counter of the present second."""
        row = self.labelled[self.second]
        row[family, label] = row.get((family, label), 0) + amount

    def sample(self, metric: str, value_ns: int, weight: int = 1) -> None:
        """Add a duration to the present second."""
        self.samples.append((LATENCY_INDEX[metric], self.second, value_ns, weight))

    def enter(self, cause: int, t_ns: int) -> None:
        """One more sequence waits for a cause."""
        self._settle(cause, t_ns)
        self.curve.waiting[cause] += 1

    def leave(self, cause: int, t_ns: int) -> None:
        """One sequence fewer waits for a cause."""
        self._settle(cause, t_ns)
        self.curve.waiting[cause] -= 1

    def settle(self, t_ns: int) -> None:
        """Account all waits up to a time; then causes may change in `curve.waiting` itself."""
        for cause in ALL_CAUSES:
            self._settle(cause, t_ns)

    def change_after(self, step: int, t_ns: int) -> None:
        """One more (or fewer) of those that wait was preempted."""
        curve = self.curve
        self.now[_AFTER] += curve.after * (t_ns - curve.after_settled_ns)
        curve.after_settled_ns = t_ns
        curve.after += step

    def _settle(self, cause: int, t_ns: int) -> None:
        curve = self.curve
        waiting = curve.waiting[cause]
        if waiting:
            self.waited_ns[cause] += waiting * (t_ns - curve.settled_ns[cause])
        curve.settled_ns[cause] = t_ns

    def advance(self, second: int, gauges: Gauges) -> None:
        """Close every second before another one; `gauges` are what stands until then."""
        while self.second < second:
            self.close_second(gauges)
            self.second += 1

    def close_second(self, gauges: Gauges) -> None:
        """Settle what waits up to the end of the present second, and keep its sums."""
        end = self.ends[self.second]
        for cause in ALL_CAUSES:
            self._settle(cause, end)
            passed = self.waited_ns[cause]
            if passed:
                self.now[_CLASS_COLUMN[cause]] += passed
                self.curve.accrued_ns += passed
                self.label("wait_ns", CAUSE_LABELS[cause], passed)
        self.waited_ns = [0] * NUM_CAUSES
        self.change_after(0, end)
        self.counters[self.second] += np.array(self.now, np.int64)
        self.now = [0] * len(COUNTERS)
        self.gauges.append(gauges)

    def samples_table(self) -> Samples:
        """Return the durations added so far."""
        table = np.array(self.samples, np.int64).reshape(-1, 4)
        return Samples(table[:, 0], self.grid.starts[table[:, 1]], table[:, 2], table[:, 3])
