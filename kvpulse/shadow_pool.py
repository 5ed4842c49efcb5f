"""Follow an allocator that cannot answer for itself, so that its journal has keyframes.

`ShadowPool` takes the calls in the allocator's stead: it works out the resulting counts and
outcomes, states them through the recorder, and remembers. Each record is stated before it is
remembered, so the shadow equals the records at every moment and a keyframe may be taken between any
two of them.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kvpulse.events import FreeOutcome, SequenceState, WaitCause, WaitFlag
from kvpulse.keyframe import Keyframe, KeyframeSequence
from kvpulse.recorder import Recorder

T = TypeVar("T")
_ENGINE_BUSY: Final = (WaitCause.ENGINE_BUSY, WaitFlag.ENGINE_BUSY, 0)


@dataclass(slots=True)
class _Shadow:
    """What is known of one live sequence."""

    owner: int
    tenant: int
    state: SequenceState
    since_ns: int
    arrived_ns: int
    wait: tuple[int, int, int] = (0, 0, 0)  # cause, flags, blocker
    prompt_tokens: int = 0
    max_tokens: int = 0
    preemptions: int = 0
    first_token_ns: int = 0
    parent: int = 0
    priority: int = 0
    tier: int = 0
    retry: int = 0
    table: list[int] = field(default_factory=list)


class ShadowPool:
    """States what an allocator does and keeps what keyframes need.

    Args:
        recorder: Its stream, just opened; heartbeats and audits go to it directly.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._clock = recorder.clock
        self._counts = array("I", bytes(4 * recorder.total_blocks))
        self._hashes: dict[int, int] = {}
        self._cached: dict[int, None] = {}
        self._sequences: dict[int, _Shadow] = {}
        self._step = 0
        recorder.set_snapshot(self.snapshot, anytime=True)

    def snapshot(self) -> Keyframe:
        """Return the state after every record stated so far."""
        return Keyframe(
            counts=self._counts,
            hashes=self._hashes,
            cached_blocks=self._cached,
            sequences=[_as_keyframe(shadow) for shadow in self._sequences.values()],
            step=self._step,
        )

    def arrive(
        self, owner: int, prompt_tokens: int, max_tokens: int, tenant: int = 0, **more: Any
    ) -> None:
        """State a request, see `Recorder.arrive` for `more`; it waits from now on."""
        self.recorder.arrive(owner, prompt_tokens, max_tokens, tenant, **more)
        shadow = self._new(owner, tenant, SequenceState.WAITING)
        shadow.prompt_tokens = prompt_tokens
        shadow.max_tokens = max_tokens
        shadow.wait = _ENGINE_BUSY
        _keep(shadow, more)

    def wait(self, owner: int, cause: int, flags: int, blocker: int = 0) -> None:
        """State why `owner` waits."""
        shadow = self._of(owner)
        self.recorder.wait(owner, cause, flags, blocker, shadow.tenant)
        shadow.wait = (cause, flags, blocker)
        shadow.since_ns = self._clock()

    def admit(self, owner: int) -> None:
        """State that `owner` runs for the first time."""
        shadow = self._of(owner)
        self.recorder.admit(owner, shadow.tenant)
        self._run(shadow)

    def resume(self, owner: int, tokens_found: int) -> None:
        """State that `owner` runs again."""
        shadow = self._of(owner)
        self.recorder.resume(owner, tokens_found, shadow.tenant)
        self._run(shadow)

    def preempt(
        self,
        owner: int,
        beneficiary: int,
        mode: int,
        tokens_lost: int,
        blocks_freed: int,
        blocks_kept: int,
    ) -> None:
        """State a preemption; the blocks are freed by calls of their own."""
        shadow = self._of(owner)
        self.recorder.preempt(
            owner, beneficiary, mode, tokens_lost, blocks_freed, blocks_kept, shadow.tenant
        )
        shadow.state = SequenceState.PREEMPTED
        shadow.since_ns = self._clock()
        shadow.wait = _ENGINE_BUSY
        shadow.preemptions += 1

    def fork(self, owner: int, parent: int) -> None:
        """State that running `owner` split off `parent`; share its blocks by `share`."""
        tenant = self._of(parent).tenant
        self.recorder.fork(owner, parent, tenant)
        self._new(owner, tenant, SequenceState.RUNNING).parent = parent

    def first_token(self, owner: int) -> None:
        """State the first token of `owner`, or the first one after it was preempted."""
        shadow = self._of(owner)
        resumed = shadow.first_token_ns != 0
        self.recorder.first_token(owner, resumed, shadow.tenant)
        if not resumed:
            shadow.first_token_ns = self._clock()

    def finish(self, owner: int, reason: int, tokens: tuple[int, int, int, int]) -> None:
        """State the end of `owner`: prompt, output, computed and recomputed tokens."""
        self.recorder.finish(owner, reason, *tokens, self._of(owner).tenant)
        del self._sequences[owner]

    def reject(self, owner: int, reason: int, needed: int = 0, limit: int = 0) -> None:
        """State that an arrived request was refused."""
        self.recorder.reject(owner, reason, needed, limit, self._of(owner).tenant)
        del self._sequences[owner]

    def allocate(self, owner: int, ids: Sequence[int]) -> None:
        """State that `owner` took free blocks, or cached ones, which are evicted by it."""
        shadow = self._of(owner)
        evicted = [block for block in ids if block in self._cached]
        if evicted:
            self.evict(evicted, owner=owner)
        self.recorder.allocate(owner, ids, shadow.tenant)
        for block in ids:
            self._counts[block] = 1
        shadow.table.extend(ids)

    def share(self, owner: int, ids: Sequence[int]) -> None:
        """State that `owner` took one more reference to each of `ids`."""
        shadow = self._of(owner)
        for count, run in _runs(ids, lambda block: self._counts[block] + 1):
            self.recorder.share(owner, run, count, shadow.tenant)
            for block in run:
                self._counts[block] += 1
                self._cached.pop(block, None)
            shadow.table.extend(run)

    def free(self, owner: int, ids: Sequence[int]) -> None:
        """State that `owner` gave up one reference to each of `ids`.

        A block that `cache` named stays cached when nobody is left; a double free is refused.
        """
        shadow = self._of(owner)
        for (count, outcome), run in _runs(ids, self._after_free):
            self.recorder.free(owner, run, count, outcome, shadow.tenant)
            if outcome is FreeOutcome.REFUSED:
                continue
            for block in run:
                self._counts[block] = count
                if block in shadow.table:
                    shadow.table.remove(block)
                if outcome is FreeOutcome.TO_CACHE:
                    self._cached[block] = None

    def cache(self, owner: int, ids: Sequence[int], hashes: Sequence[int]) -> None:
        """State the content identity of active blocks."""
        self.recorder.cache(owner, ids, hashes, self._of(owner).tenant)
        self._hashes.update(zip(ids, hashes, strict=True))

    def evict(self, ids: Sequence[int], *, owner: int = 0) -> None:
        """State that cached blocks lost their content."""
        self.recorder.evict(ids, owner=owner)
        for block in ids:
            self._cached.pop(block, None)
            self._hashes.pop(block, None)

    def step(self, number: int, *counts: int) -> None:
        """State one finished step, see `Recorder.step`."""
        self._step = number
        self.recorder.step(number, *counts)

    def _after_free(self, block: int) -> tuple[int, FreeOutcome]:
        count = self._counts[block]
        if count == 0:
            return 0, FreeOutcome.REFUSED
        if count > 1:
            return count - 1, FreeOutcome.HELD
        return 0, FreeOutcome.TO_CACHE if block in self._hashes else FreeOutcome.TO_FREE

    def _of(self, owner: int) -> _Shadow:
        return self._sequences.get(owner) or self._new(owner, 0, SequenceState.RUNNING)

    def _new(self, owner: int, tenant: int, state: SequenceState) -> _Shadow:
        now = self._clock()
        shadow = self._sequences[owner] = _Shadow(owner, tenant, state, now, now)
        return shadow

    def _run(self, shadow: _Shadow) -> None:
        shadow.state = SequenceState.RUNNING
        shadow.since_ns = self._clock()
        shadow.wait = (0, 0, 0)


def _runs(ids: Sequence[int], key: Callable[[int], T]) -> Iterator[tuple[T, list[int]]]:
    """Yield runs of ids with one value of `key`, in order; no id stands twice in a run."""
    start = 0
    while start < len(ids):
        # Asked anew for each run: the caller has applied the one before.
        value = key(ids[start])
        end = start + 1
        seen = {ids[start]}
        while end < len(ids) and ids[end] not in seen and key(ids[end]) == value:
            seen.add(ids[end])
            end += 1
        yield value, list(ids[start:end])
        start = end


def _keep(shadow: _Shadow, more: Mapping[str, int]) -> None:
    shadow.parent = more.get("parent", 0)
    shadow.priority = more.get("priority", 0)
    shadow.tier = more.get("tier", 0)
    shadow.retry = more.get("retry", 0)


def _as_keyframe(shadow: _Shadow) -> KeyframeSequence:
    cause, flags, blocker = shadow.wait
    return KeyframeSequence(
        owner=shadow.owner,
        state=shadow.state,
        tenant=shadow.tenant,
        cause=cause,
        flags=flags,
        blocker=blocker,
        since_ns=shadow.since_ns,
        arrived_ns=shadow.arrived_ns,
        prompt_tokens=shadow.prompt_tokens,
        max_tokens=shadow.max_tokens,
        preemptions=shadow.preemptions,
        first_token_ns=shadow.first_token_ns,
        priority=shadow.priority,
        tier=shadow.tier,
        parent=shadow.parent,
        retry=shadow.retry,
        table=shadow.table,
    )
