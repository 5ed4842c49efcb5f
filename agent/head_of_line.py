"""Head-of-line blocking as facts: who is in front, what could run behind it, what that has cost.

The engine judges each waiting sequence alone and names the blocker of those that would fit; this
adds up what it named. It says what is so; whether that is the problem is for triage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.kv_groups import StatedGroups


@dataclass(frozen=True, slots=True)
class Waiter:
    """One waiting sequence."""

    owner: int
    arrived_ns: int
    cause: str  # a wait cause by name
    blocker: int  # whom it waits behind; 0: nobody
    needed_blocks: int | None  # to begin (or to go on); None: not known


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """A sequence that waits for blocks, and others that wait behind it although they would fit."""

    owner: int
    needed_blocks: int | None
    available_blocks: int  # free + cached: cached ones can be taken back at once
    num_behind: int  # sequences that name it
    num_runnable: int  # of those, how many could run together right now
    runnable_blocks: int  # what these need
    waited_ns: int  # its own wait so far
    booked_ns: int  # others' waiting in which they named it, so far

    @property
    def sentence(self) -> str:
        """Return the facts in words."""
        free = f"{self.available_blocks} are free or reclaimable"
        need = f"{self.needed_blocks} blocks and {free}"
        if self.needed_blocks is None:
            need = f"more blocks than the {self.available_blocks} that are free or reclaimable"
        others = "sequence waits" if self.num_behind == 1 else "sequences wait"
        return (
            f"sequence {self.owner} is at the head of the line: it needs {need}."
            f" {self.num_behind} {others} behind it, with {self.runnable_blocks} blocks of runnable"
            f" work; {self.booked_ns / 1e9:.1f} s of their waiting is booked to it"
        )


def head_of_line(
    waiters: Iterable[Waiter],
    *,
    available_blocks: int,
    booked_ns: Mapping[int, int],
    now_ns: int,
) -> HeadOfLine | None:
    """Return the sequence that most others name as their blocker; None if nobody names one.

    Args:
        waiters: Everybody who waits.
        available_blocks: Free and cached blocks.
        booked_ns: For each blocker, others' waiting behind it up to now.
        now_ns: On the clock of the arrivals.
    """
    line = sorted(waiters, key=lambda waiter: (waiter.arrived_ns, waiter.owner))
    by_owner = {waiter.owner: waiter for waiter in line}
    named = Counter(w.blocker for w in line if w.blocker in by_owner)
    if not named:
        return None
    # The first one in line of those named equally often.
    place = {waiter.owner: -idx for idx, waiter in enumerate(line)}
    first = by_owner[max(named, key=lambda owner: (named[owner], place[owner]))]
    runnable = _that_fit([w for w in line if w.blocker == first.owner], available_blocks)
    return HeadOfLine(
        owner=first.owner,
        needed_blocks=first.needed_blocks,
        available_blocks=available_blocks,
        num_behind=named[first.owner],
        num_runnable=len(runnable),
        runnable_blocks=sum(runnable),
        waited_ns=now_ns - first.arrived_ns,
        booked_ns=booked_ns.get(first.owner, 0),
    )


def _that_fit(line: list[Waiter], available_blocks: int) -> list[int]:
    """Return what those need who would fit together, taken in the order of the line."""
    fitting: list[int] = []
    for waiter in line:
        need = waiter.needed_blocks
        if need is not None and sum(fitting) + need <= available_blocks:
            fitting.append(need)
    return fitting


def needed_blocks(
    stated: int | None, prompt_tokens: int | None, block_size: int, groups: StatedGroups
) -> int | None:
    """Return what a waiting sequence needs: as the engine stated, else for its prompt."""
    if stated is not None or prompt_tokens is None:
        return stated
    return groups.most_blocks(prompt_tokens, 0, block_size)
