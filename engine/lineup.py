"""Who is live: the queue and the batch, each in order of rank."""

from bisect import insort
from typing import Final

from engine.policy.ranking import order_key
from engine.sequence import Sequence, SequenceStatus

NOBODY: Final = -1
SEVERAL: Final = 0


class Lineup:
    """Everyone who waits and everyone who runs; the samples of a request stand together.

    Attributes:
        waiting: The queue, the next to be admitted first.
        running: The batch; whoever is last gives way first.
        live: All of them by number.
        forks: Those of them that split off another, by the number of their request.
        num_decoding: How many of the batch are past their prompt.
    """

    __slots__ = ("_several_samples", "forks", "live", "num_decoding", "running", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.live: dict[int, Sequence] = {}
        self.forks: dict[int, list[Sequence]] = {}
        self.num_decoding = 0
        self._several_samples = False  # whether anybody ever took more than one place

    @property
    def num_places_taken(self) -> int:
        """Return how many places of the batch are taken, those for samples to come included."""
        if not self._several_samples:
            return len(self.running)
        return sum(seq.num_slots_reserved for seq in self.running)

    @property
    def only_root(self) -> int:
        """Return the request of everyone who runs, SEVERAL of several, or NOBODY."""
        if not self.running:
            return NOBODY
        first = self.running[0].root_id
        return first if first == self.running[-1].root_id else SEVERAL

    @property
    def most_places_asked(self) -> int:
        """Return a bound on the places that one who waits asks for."""
        return 1 << 30 if self._several_samples else 1

    def add_waiting(self, seq: Sequence) -> None:
        """Put a sequence into the queue."""
        self._several_samples |= seq.num_slots_reserved > 1 or seq.gang is not None
        _insert(self.waiting, seq)

    def add_running(self, seq: Sequence) -> None:
        """Put a sequence into the batch."""
        _insert(self.running, seq)

    def take_out(self, seq: Sequence) -> None:
        """Take a sequence out of queue or batch."""
        if seq.status is SequenceStatus.RUNNING:
            self.running.remove(seq)
            if not seq.prefilling:
                self.num_decoding -= 1
        else:
            self.waiting.remove(seq)


def group_of(seq: Sequence) -> list[Sequence]:
    """Return who waits, runs and ends together with a sequence: its gang, or itself."""
    return [seq] if seq.gang is None else list(seq.gang.members)


def _insert(line: list[Sequence], seq: Sequence) -> None:
    if not line or order_key(line[-1]) <= order_key(seq):
        line.append(seq)
    else:
        insort(line, seq, key=order_key)
