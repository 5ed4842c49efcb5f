"""A store written as in production: a scripted allocator records, the agent's parts follow it."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agent.sources.journal import JournalFolder
from agent.store.store import Store
from agent.stream_follower import Clocks, StreamFollower
from kvpulse.events import BlockState, FinishReason, FreeOutcome, RejectReason, WaitCause, WaitFlag
from kvpulse.events import block_weight as weight
from kvpulse.recorder import Recorder

SECOND = 1_000_000_000
BLOCK_SIZE = 16
TENANTS = ("search", "chat", "batch")


@dataclass
class Live:
    """One sequence of the scripted engine."""

    owner: int
    tenant: int
    prompt: int
    table: list[int] = field(default_factory=list)
    output: int = 0
    cause: WaitCause | None = None


class ScriptedEngine:
    """An allocator that does what a test says, records it, and remembers the truth."""

    def __init__(
        self, journal: Path, *, total: int = 512, seconds_ago: float = 300, engine: str = "llm-0"
    ) -> None:
        self.t_ns = 1_000 * SECOND
        wall0 = time.time_ns() - int(seconds_ago * SECOND)
        self.recorder = Recorder.open(
            journal,
            engine,
            total_blocks=total,
            block_size=BLOCK_SIZE,
            clock=lambda: self.t_ns,
            wall_clock=lambda: wall0 + self.t_ns - 1_000 * SECOND,
            segment_bytes=8 * 2**20,
        )
        self.recorder.config(
            {
                "engine": engine,
                "model": "SmolLM2-135M",
                "kv_format": "fp32",
                "bytes_per_token": 46_080,
                "block_size": BLOCK_SIZE,
                "total_blocks": total,
                "runner": "scripted",
                "version": "0.1.0",
            }
        )
        self.total = total
        self.count = np.zeros(total, np.int64)
        self.state = np.zeros(total, np.uint8)
        self.free_ids = list(range(total))
        self.live: dict[int, Live] = {}
        self.leaked: list[int] = []
        self.tenants = [self.recorder.tenant(name) for name in TENANTS]
        self.next_owner = 1
        self.steps = 0
        self._weights = np.array([weight(block) for block in range(total)], np.uint64)

    def arrive(self, prompt: int, *, tenant: int = 0) -> int:
        owner, self.next_owner = self.next_owner, self.next_owner + 1
        self.live[owner] = Live(owner, self.tenants[tenant], prompt)
        self.recorder.arrive(owner, prompt, 256, self.tenants[tenant])
        return owner

    def wait(self, owner: int, cause: WaitCause) -> None:
        if self.live[owner].cause is cause:
            return
        self.live[owner].cause = cause
        self.recorder.wait(owner, cause, WaitFlag(1 << (cause - 1)), 0, self.live[owner].tenant)

    def reject(self, owner: int, reason: RejectReason) -> None:
        self.recorder.reject(owner, reason, 0, 0, self.live.pop(owner).tenant)

    def take(self, owner: int, num_blocks: int) -> list[int]:
        ids = [self.free_ids.pop() for _ in range(num_blocks)]
        cached = [block for block in ids if self.state[block] == BlockState.CACHED]
        if cached:
            self.recorder.evict(cached, 1, owner)
        self.recorder.allocate(owner, ids, self.live[owner].tenant)
        self.count[ids] = 1
        self.state[ids] = BlockState.ACTIVE
        self.live[owner].table += ids
        return ids

    def share(self, owner: int, ids: Sequence[int]) -> None:
        for block in ids:
            self.count[block] += 1
            self.recorder.share(owner, [block], int(self.count[block]), self.live[owner].tenant)
        self.live[owner].table += list(ids)

    def admit(self, owner: int, num_blocks: int, *, shared: Sequence[int] = ()) -> None:
        self.share(owner, shared)
        ids = self.take(owner, num_blocks)
        self.recorder.cache(owner, ids[:-1], [block * 7919 + owner for block in ids[:-1]])
        self.recorder.prefix_hit(owner, len(shared) * BLOCK_SIZE, self.live[owner].prompt)
        self.recorder.admit(owner, self.live[owner].tenant)

    def drop(self, owner: int, *, leak: int = 0) -> tuple[int, int]:
        """Give a sequence's blocks back, all but `leak` of those that only it holds."""
        sequence = self.live[owner]
        kept = 0
        for block in reversed(sequence.table[leak:]):
            self.count[block] -= 1
            if self.count[block]:
                outcome = FreeOutcome.HELD
            elif block == sequence.table[-1]:
                outcome = FreeOutcome.TO_FREE
                self.state[block] = BlockState.FREE
            else:
                outcome = FreeOutcome.TO_CACHE
                self.state[block] = BlockState.CACHED
                kept += 1
            if outcome is not FreeOutcome.HELD:
                self.free_ids.insert(0, block)
            self.recorder.free(owner, [block], int(self.count[block]), outcome, sequence.tenant)
        self.leaked += sequence.table[:leak]
        freed = len(sequence.table) - leak
        sequence.table = []
        sequence.cause = None
        return freed, kept

    def first_token(self, owner: int, *, resumed: bool = False) -> None:
        self.recorder.first_token(owner, resumed, self.live[owner].tenant)

    def preempt(self, owner: int, beneficiary: int) -> None:
        freed, kept = self.drop(owner)
        self.recorder.preempt(
            owner, beneficiary, 1, freed * BLOCK_SIZE, freed, kept, self.live[owner].tenant
        )

    def resume(self, owner: int, num_blocks: int) -> None:
        self.take(owner, num_blocks)
        self.recorder.resume(owner, 0, self.live[owner].tenant)

    def finish(
        self, owner: int, *, reason: FinishReason = FinishReason.STOP, leak: int = 0
    ) -> None:
        self.drop(owner, leak=leak)
        done = self.live.pop(owner)
        computed = done.prompt + done.output
        self.recorder.finish(owner, reason, done.prompt, done.output, computed, 0, done.tenant)

    def step(self, seconds: float = 0.05) -> None:
        self.t_ns += int(seconds * SECOND)
        running = [sequence for sequence in self.live.values() if sequence.table]
        for sequence in running:
            sequence.output += 1
        self.steps += 1
        waiting = len(self.live) - len(running)
        compute = int(seconds * SECOND * 0.9)
        self.recorder.step(
            self.steps, 0, len(running), len(running), 0, waiting, 40_000, compute, 90_000
        )

    def audit(self) -> None:
        """State the pool's own account, counted from the truth."""
        states = np.bincount(self.state, minlength=3)
        checksum = int((self._weights * self.count.astype(np.uint64)).sum(dtype=np.uint64))
        self.recorder.pool(
            self.total,
            int(states[BlockState.ACTIVE]),
            int(states[BlockState.CACHED]),
            int(states[BlockState.FREE]),
            int(self.count.sum()),
            checksum,
            filled_slots=int(states[BlockState.ACTIVE]) * BLOCK_SIZE * 9 // 10,
        )
        self.recorder.heartbeat(self.steps, len(self.live), 0)


def busy_run(engine: ScriptedEngine, *, seconds: int, seed: int = 7) -> None:
    """Serve a mixed load: admissions, waits for blocks, refusals, a preemption now and then."""
    draw = random.Random(seed)
    for second in range(seconds):
        for _ in range(draw.randint(0, 1 + 2 * (second % 90 > 60))):
            owner = engine.arrive(draw.randint(64, 900), tenant=draw.choice((0, 0, 1, 2)))
            if draw.random() < 0.04:
                reason = draw.choice((RejectReason.CONTEXT_TOO_LONG, RejectReason.EXCEEDS_POOL))
                engine.reject(owner, reason)
            elif sum(not row.table for row in engine.live.values()) > 12:
                engine.reject(owner, RejectReason.QUEUE_FULL)
        for _ in range(4):
            admit_what_fits(engine, draw)
            engine.step(0.25)
        for owner in [
            row.owner for row in engine.live.values() if row.output > 12 + row.owner % 60
        ]:
            cancelled = draw.random() < 0.1
            engine.finish(owner, reason=FinishReason.CANCELLED if cancelled else FinishReason.STOP)
        engine.audit()


def admit_what_fits(engine: ScriptedEngine, draw: random.Random) -> None:
    """Admit waiting sequences in order; the first that does not fit may preempt the newest."""
    running = [row for row in engine.live.values() if row.table]
    for row in [row for row in engine.live.values() if not row.table]:
        need = row.prompt // BLOCK_SIZE + 4
        if need < len(engine.free_ids) and len(running) < 24:
            shared = running[0].table[:3] if running and row.owner % 3 == 0 else ()
            if row.output:
                engine.resume(row.owner, need)
            else:
                engine.admit(row.owner, need, shared=shared)
            engine.first_token(row.owner, resumed=row.output > 0)
            running.append(row)
            continue
        full = len(running) >= 24
        engine.wait(row.owner, WaitCause.BATCH_SLOTS if full else WaitCause.POOL)
        if not full and running and running[-1].output > 6 and draw.random() < 0.03:
            engine.preempt(running.pop().owner, row.owner)
        break


def store_journal(journal: Path, store: Path, *, finish: bool = False) -> None:
    """Read every stream of a journal into a store, as `kvpulse agent` does."""
    with Store.open(str(store)) as opened:
        for found in JournalFolder(journal).streams():
            follower = StreamFollower(found, opened, Clocks())
            while True:
                follower.look()
                done = follower.step(65_536)
                if not done.may_have_more and not done.committed:
                    break
            if finish:
                follower.end(follower.look().writer)
            follower.close()
