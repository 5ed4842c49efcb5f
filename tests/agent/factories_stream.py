"""A small legal engine that drives the real Recorder, and what a test reads back from it."""

import random
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvpulse.events import (
    FinishReason,
    FreeOutcome,
    RejectReason,
    SequenceState,
    WaitCause,
    block_weight,
)
from kvpulse.keyframe import Keyframe, KeyframeSequence
from kvpulse.reader import StreamReader
from kvpulse.recorder import Recorder
from kvpulse.stream_values import Batch

MS = 1_000_000
SECOND = 1_000 * MS
WALL_AT_START = 1_700_000_000 * SECOND + 123_456_789


@dataclass
class Clock:
    """Engine time, moved by hand."""

    now_ns: int = 5 * SECOND

    def __call__(self) -> int:
        return self.now_ns

    def wall(self) -> int:
        return WALL_AT_START + self.now_ns


@dataclass
class ToySequence:
    owner: int
    tenant: int
    state: SequenceState = SequenceState.WAITING
    cause: int = 7
    since_ns: int = 0
    arrived_ns: int = 0
    blocker: int = 0
    parent: int = 0
    table: list[int] = field(default_factory=list)
    host: list[int] = field(default_factory=list)


HOST_BLOCKS = 10


class ToyEngine:
    """Allocates, shares, copies, swaps, caches, evicts by the rules; keeps its own account."""

    def __init__(
        self, journal: Path, *, total_blocks: int = 24, host_blocks: int = 0, **options: object
    ) -> None:
        self.host_blocks, self.host_free = host_blocks, list(range(host_blocks))
        self.total, self.clock = total_blocks, Clock()
        self.counts = [0] * total_blocks
        self.hashes: dict[int, int] = {}
        self.cached: OrderedDict[int, None] = OrderedDict()
        self.free = list(range(total_blocks))
        self.live: dict[int, ToySequence] = {}
        self.next_owner, self.steps = 1, 0
        self.recorder = Recorder.open(
            journal,
            "toy",
            total_blocks=total_blocks,
            block_size=16,
            host_blocks=host_blocks,
            snapshot=self.keyframe,
            clock=self.clock,
            wall_clock=self.clock.wall,
            **options,
        )
        self.tenants = [0, self.recorder.tenant("alpha"), self.recorder.tenant("beta")]

    def keyframe(self) -> Keyframe:
        rows = [
            KeyframeSequence(
                owner=s.owner,
                state=int(s.state),
                tenant=s.tenant,
                cause=s.cause if s.state != SequenceState.RUNNING else 0,
                blocker=s.blocker,
                parent=s.parent,
                since_ns=s.since_ns,
                arrived_ns=s.arrived_ns,
                prompt_tokens=100,
                max_tokens=50,
                table=list(s.table),
            )
            for s in self.live.values()
        ]
        counts, cached = list(self.counts), list(self.cached)
        return Keyframe(counts, dict(self.hashes), cached, rows, self.host_counts())

    def host_counts(self) -> list[int]:
        return [int(block not in self.host_free) for block in range(self.host_blocks)]

    def arrive(self, tenant: int = 0) -> ToySequence:
        owner, self.next_owner = self.next_owner, self.next_owner + 1
        now = self.clock()
        self.recorder.arrive(owner, 100, 50, self.tenants[tenant], asked_max_tokens=60)
        sequence = self.live[owner] = ToySequence(owner, self.tenants[tenant], since_ns=now)
        sequence.arrived_ns = now
        return sequence

    def wait(self, sequence: ToySequence, cause: int, blocker: int = 0) -> None:
        if (cause, blocker) != (sequence.cause, sequence.blocker):
            flags = 1 << (cause - 1)
            self.recorder.wait(sequence.owner, cause, flags, blocker, sequence.tenant)
            sequence.cause, sequence.blocker, sequence.since_ns = cause, blocker, self.clock()

    def admit(self, sequence: ToySequence) -> None:
        if sequence.state == SequenceState.SWAPPED and not self.swap_in(sequence):
            return
        sequence.blocker = 0
        if sequence.state in (SequenceState.PREEMPTED, SequenceState.SWAPPED):
            self.recorder.resume(sequence.owner, 0, sequence.tenant)
        else:
            self.recorder.admit(sequence.owner, sequence.tenant)
        sequence.state, sequence.since_ns = SequenceState.RUNNING, self.clock()

    def allocate(self, sequence: ToySequence, number: int = 1) -> None:
        ids: list[int] = []
        for _ in range(number):
            if self.free:
                ids.append(self.free.pop())
            elif self.cached:
                block = self.cached.popitem(last=False)[0]
                del self.hashes[block]
                self.recorder.evict([block], 1, sequence.owner)
                ids.append(block)
        if not ids:
            self.recorder.allocate_failed(
                sequence.owner, number, 0, 0, int(WaitCause.POOL), sequence.tenant
            )
            return
        self.recorder.allocate(sequence.owner, ids, sequence.tenant)
        for block in ids:
            self.counts[block] = 1
        sequence.table += ids

    def cache(self, sequence: ToySequence) -> None:
        ids = [block for block in sequence.table if block not in self.hashes][:2]
        if ids:
            self.hashes.update((block, (block * 977 + self.steps) | 1) for block in ids)
            self.recorder.cache(sequence.owner, ids, [self.hashes[b] for b in ids], sequence.tenant)

    def share(self, sequence: ToySequence, block: int) -> None:
        self.cached.pop(block, None)
        self.counts[block] += 1
        self.recorder.share(sequence.owner, [block], self.counts[block], sequence.tenant)
        sequence.table.append(block)

    def fork(self, parent: ToySequence) -> ToySequence:
        owner, self.next_owner = self.next_owner, self.next_owner + 1
        self.recorder.fork(owner, parent.owner, parent.tenant)
        child = self.live[owner] = ToySequence(owner, parent.tenant, SequenceState.RUNNING)
        child.arrived_ns = child.since_ns = self.clock()
        child.parent = parent.parent or parent.owner
        for block in list(dict.fromkeys(parent.table)):
            self.share(child, block)
        return child

    def drop(self, sequence: ToySequence, blocks: list[int]) -> None:
        for block in blocks:
            sequence.table.remove(block)
            self.counts[block] -= 1
            outcome = FreeOutcome.HELD
            if not self.counts[block]:
                outcome = FreeOutcome.TO_CACHE if block in self.hashes else FreeOutcome.TO_FREE
                if outcome == FreeOutcome.TO_CACHE:
                    self.cached[block] = None
                else:
                    self.free.append(block)
            self.recorder.free(
                sequence.owner, [block], self.counts[block], int(outcome), sequence.tenant
            )

    def copy(self, sequence: ToySequence) -> None:
        """Write into a shared block: take a new one, and leave the shared one to the others."""
        shared = [block for block in sequence.table if self.counts[block] > 1]
        if not shared or not self.free:
            return
        source, target = shared[0], self.free.pop()
        self.recorder.allocate(sequence.owner, [target], sequence.tenant)
        self.counts[target] = 1
        sequence.table.append(target)
        self.recorder.copy_on_write(sequence.owner, [source, target], sequence.tenant)
        self.drop(sequence, [source])

    def swap_out(self, sequence: ToySequence) -> None:
        """Preempt by copying every block to the host, shared ones too."""
        gpu = list(sequence.table)
        if not gpu or len(gpu) > len(self.host_free):
            return
        sequence.host = [self.host_free.pop() for _ in gpu]
        owner, tenant = sequence.owner, sequence.tenant
        pairs = [block for pair in zip(gpu, sequence.host, strict=True) for block in pair]
        self.recorder.swap_out(owner, pairs, tenant)
        self.recorder.allocate(owner, sequence.host, tenant, host=True)
        self.drop(sequence, list(reversed(gpu)))
        self.recorder.preempt(owner, 0, 2, 0, len(gpu), 0, tenant)
        sequence.state, sequence.cause = SequenceState.SWAPPED, int(WaitCause.ENGINE_BUSY)
        sequence.since_ns = self.clock()

    def swap_in(self, sequence: ToySequence) -> bool:
        if len(sequence.host) > len(self.free):
            return False
        ids = [self.free.pop() for _ in sequence.host]
        owner, tenant = sequence.owner, sequence.tenant
        pairs = [block for pair in zip(sequence.host, ids, strict=True) for block in pair]
        self.recorder.swap_in(owner, pairs, tenant)
        self.recorder.allocate(owner, ids, tenant)
        self.counts = [1 if block in ids else n for block, n in enumerate(self.counts)]
        sequence.table += ids
        self.drop_host(sequence)
        return True

    def drop_host(self, sequence: ToySequence) -> None:
        if sequence.host:
            to_free = int(FreeOutcome.TO_FREE)
            self.recorder.free(
                sequence.owner, sequence.host, 0, to_free, sequence.tenant, host=True
            )
            self.host_free += sequence.host
            sequence.host = []

    def preempt(self, sequence: ToySequence) -> None:
        freed = len(sequence.table)
        self.drop(sequence, list(reversed(sequence.table)))
        self.recorder.preempt(sequence.owner, 0, 1, 10, freed, 0, sequence.tenant)
        sequence.state, sequence.cause = SequenceState.PREEMPTED, int(WaitCause.ENGINE_BUSY)
        sequence.since_ns = self.clock()

    def finish(self, sequence: ToySequence, *, leak: int = 0) -> None:
        self.drop(sequence, list(reversed(sequence.table))[leak:])
        self.drop_host(sequence)
        self.recorder.finish(
            sequence.owner, int(FinishReason.STOP), 100, 7, 107, 0, sequence.tenant
        )
        del self.live[sequence.owner]

    def reject(self, sequence: ToySequence) -> None:
        self.recorder.reject(sequence.owner, int(RejectReason.QUEUE_FULL), 1, 1, sequence.tenant)
        del self.live[sequence.owner]

    def step(self, *, decode: int = 1) -> None:
        self.steps += 1
        self.recorder.step(self.steps, 8, decode, 1, 100, 0, 10_000, 3 * MS, 20_000)

    def pool(self, *, lie: int = 0) -> None:
        active = sum(count > 0 for count in self.counts)
        checksum = sum(block_weight(b) * count for b, count in enumerate(self.counts)) % 2**64
        self.recorder.pool(
            self.total,
            active + lie,
            len(self.cached),
            self.total - active - len(self.cached),
            sum(self.counts),
            checksum,
            filled_slots=active * 16,
            largest_free_run=1,
        )
        if not self.host_blocks:
            return
        host = [block for block, count in enumerate(self.host_counts()) if count]
        words = (self.host_blocks, len(host), 0, len(self.host_free), len(host))
        self.recorder.pool(*words, sum(map(block_weight, host)) % 2**64, host=True)

    def act(self, rng: random.Random) -> None:
        """Do one legal thing at random, a little later."""
        self.clock.now_ns += rng.choice((0, 1, 999, 3 * MS, 40 * MS, 350 * MS, 1700 * MS))
        waiting = [s for s in self.live.values() if s.state != SequenceState.RUNNING]
        running = [s for s in self.live.values() if s.state == SequenceState.RUNNING]
        dice = rng.random()
        if dice < 0.12 or not self.live:
            self.arrive(rng.randrange(3))
        elif dice < 0.22 and waiting:
            blocker = rng.choice(waiting).owner if rng.random() < 0.5 else 0
            self.wait(rng.choice(waiting), rng.randint(1, 7), blocker)
        elif dice < 0.34 and waiting:
            self.admit(rng.choice(waiting))
        elif dice < 0.38 and waiting:
            chosen = rng.choice(waiting)
            if chosen.state == SequenceState.WAITING:
                self.reject(chosen)
            else:
                self.finish(chosen)
        elif dice < 0.45:
            self.step(decode=rng.randrange(3))
        elif dice < 0.5:
            self.pool()
        elif running:
            self._act_on(rng.choice(running), rng)

    def _act_on(self, sequence: ToySequence, rng: random.Random) -> None:
        dice = rng.random()
        if dice < 0.45:
            self.allocate(sequence, rng.choice((1, 1, 1, 2, 5)))
        elif dice < 0.6:
            self.cache(sequence)
        elif dice < 0.75:
            mine = set(sequence.table)
            others = [b for b, n in enumerate(self.counts) if n and b not in mine]
            others += list(self.cached)
            if others:
                self.share(sequence, rng.choice(others))
        elif dice < 0.8:
            self.fork(sequence)
        elif dice < 0.83 and sequence.table:
            self.drop(sequence, [rng.choice(sequence.table)])
        elif dice < 0.86:
            self.copy(sequence)
        elif dice < 0.89:
            self.swap_out(sequence)
        elif dice < 0.93:
            self.preempt(sequence)
        else:
            self.finish(sequence)


def record(folder: Path, seed: int, num_acts: int, **options: object) -> Path:
    """Run a toy engine; return its stream's folder."""
    engine = ToyEngine(folder, **{"host_blocks": HOST_BLOCKS, **options})
    rng = random.Random(seed)
    for _ in range(num_acts):
        engine.act(rng)
    engine.pool()
    engine.recorder.close()
    return engine.recorder.directory


def batches(stream: Path, *, max_events: int = 65_536) -> Iterator[Batch]:
    """Read a stream to its end."""
    reader = StreamReader(stream)
    while (batch := reader.read(max_events)) is not None:
        yield batch
