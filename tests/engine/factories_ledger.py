"""A plain-Python ledger over a recorded stream: what the events say happened, one by one."""

from collections import Counter, defaultdict

import numpy as np

from kvpulse.events import (
    HOST_TIER,
    U64_MASK,
    FreeOutcome,
    Kind,
    PoolWord,
    block_weight,
)
from kvpulse.keyframe import NULL_ENTRY
from kvpulse.keyframe_decoder import decode_keyframe
from kvpulse.reader import StreamReader
from kvpulse.stream_values import expand_words


class PlainLedger:
    """Follows every record, and holds each audit and keyframe against what it knows."""

    def __init__(self, *, in_order=True):
        # A window frees from a table's beginning, and the radix index exchanges blocks within it.
        self.in_order = in_order
        self.host = {}  # host block: its owner
        self.choices = []  # (victim, beneficiary, mode, tokens lost, blocks freed, blocks kept)
        self.copied = defaultdict(list)
        self.parents = {}
        self.events = Counter()
        self.counts = Counter()
        self.cached = set()
        self.tables = {}
        self.waits = {}
        self.causes_seen = Counter()
        self.flags_seen = Counter()
        self.audits = 0
        self.keyframes = 0
        self.ended = Counter()
        self.free_runs = []
        self.records = []

    def read(self, directory):
        reader = StreamReader(directory, is_alive=lambda: False)
        while (batch := reader.read()) is not None:
            assert batch.gap is None
            for index in range(len(batch.records)):
                self.apply(batch, index)
        return self

    def apply(self, batch, index):
        record = batch.records[index]
        kind, n = Kind(int(record["kind"])), int(record["n"])
        owner, aux, flags = int(record["owner"]), int(record["aux"]), int(record["flags"])
        words = expand_words(batch, index).tolist() if n else []
        counts_blocks = Kind.ALLOCATE <= kind <= Kind.HOLD and kind != Kind.ALLOCATE_FAILED
        self.events[kind] += n if counts_blocks else 1
        self.records.append((kind, owner, flags, aux))
        handler = getattr(self, "on_" + kind.name.lower(), None)
        if handler is not None:
            handler(owner, words[:n] if kind == Kind.CACHE else words, flags, aux)

    def on_allocate(self, owner, ids, flags, aux):
        if flags & HOST_TIER:
            assert aux == 1
            assert not self.host.keys() & set(ids)
            self.host.update(dict.fromkeys(ids, owner))
            return
        for block in ids:
            assert self.counts[block] == 0
            assert block not in self.cached
            self.counts[block] = 1
        self.tables[owner] += ids

    def on_share(self, owner, ids, flags, aux):
        for block in ids:
            self.counts[block] += 1
            assert self.counts[block] == aux
            self.cached.discard(block)
        self.tables[owner] += ids

    def on_free(self, owner, ids, flags, aux):
        if flags & HOST_TIER:
            assert (flags & ~HOST_TIER, aux) == (FreeOutcome.TO_FREE, 0)
            for block in ids:
                assert self.host.pop(block) == owner
            return
        self.free_runs.append((owner, ids, flags, aux))
        if flags == FreeOutcome.REFUSED:
            return
        for block in ids:
            self.counts[block] -= 1
            assert self.counts[block] == aux
            self.drop(owner, block)
            if flags == FreeOutcome.TO_CACHE:
                self.cached.add(block)

    def drop(self, owner, block):
        table = self.tables[owner]
        if table[-1] == block:
            table.pop()
        elif block in self.copied[owner]:
            self.copied[owner].remove(block)
            table.remove(block)
        else:
            assert not self.in_order, "freed from the end of the table"
            table.remove(block)

    def on_copy_on_write(self, owner, pairs, flags, aux):
        assert self.tables[owner][-(len(pairs) // 2) :] == pairs[1::2]  # one for each KV group
        for source, target in zip(pairs[::2], pairs[1::2], strict=True):
            assert self.counts[source] > 1, "the last holder writes in place"
            assert self.counts[target] == 1
            assert source in self.tables[owner]
            self.copied[owner].append(source)

    def comparable(self, tables):
        return tables if self.in_order else {o: sorted(table) for o, table in tables.items()}

    def on_swap_out(self, owner, pairs, flags, aux):
        assert set(pairs[::2]) <= set(self.tables[owner])
        assert all(self.host[block] == owner for block in pairs[1::2])

    def on_swap_in(self, owner, pairs, flags, aux):
        assert all(self.host[block] == owner for block in pairs[::2])
        assert set(pairs[1::2]) <= set(self.tables[owner])

    def on_fork(self, owner, words, flags, aux):
        assert aux in self.tables, "the parent is live"
        self.tables[owner] = []
        self.parents[owner] = aux

    def on_evict(self, owner, ids, flags, aux):
        for block in ids:
            self.cached.remove(block)

    def on_arrive(self, owner, words, flags, aux):
        self.tables[owner] = []
        self.waits[owner] = 0

    def on_reject(self, owner, words, flags, aux):
        assert self.tables.pop(owner) == []
        self.waits.pop(owner, None)  # one whose step found no memory waits no more
        self.ended["rejected"] += 1

    def on_wait(self, owner, words, flags, aux):
        assert flags & -flags == 1 << aux - 1, "the cause is the first flag"
        assert (aux, words) != self.waits[owner], "only a new cause or blocker is stated"
        self.waits[owner] = (aux, words)
        self.causes_seen[aux] += 1
        self.flags_seen[flags] += 1

    def on_admit(self, owner, words, flags, aux):
        del self.waits[owner]

    on_resume = on_admit

    def on_preempt(self, owner, words, flags, aux):
        assert self.tables[owner] == []
        self.waits[owner] = 0
        self.choices.append((owner, aux, flags, *words))

    def on_finish(self, owner, words, flags, aux):
        self.ended[aux] += 1
        self.waits.pop(owner, None)
        self.left = self.tables.pop(owner)

    def on_pool(self, owner, words, flags, aux):
        if flags & HOST_TIER:
            used = dict.fromkeys(self.host, 1)
            self.compare_audit(words, used, num_cached=0)
            return
        self.audits += 1
        active = {block: n for block, n in self.counts.items() if n}
        self.compare_audit(words, active, num_cached=len(self.cached))

    def compare_audit(self, words, active, *, num_cached):
        checksum = sum(block_weight(b) * n for b, n in active.items()) & U64_MASK
        assert words[PoolWord.ACTIVE] == len(active)
        assert words[PoolWord.CACHED] == num_cached
        assert words[PoolWord.FREE] == words[PoolWord.TOTAL] - len(active) - num_cached
        assert words[PoolWord.SUM_LOW] == sum(active.values())
        found = words[PoolWord.CHECKSUM_LOW] | words[PoolWord.CHECKSUM_HIGH] << 32
        assert found == checksum

    def on_keyframe(self, owner, words, flags, aux):
        self.keyframes += 1
        keyframe, _ = decode_keyframe(np.array(words, np.uint32))
        assert [self.counts[b] for b in range(len(keyframe.counts))] == list(keyframe.counts)
        assert set(keyframe.cached_blocks) == self.cached
        host = [int(block in self.host) for block in range(len(keyframe.host_counts))]
        assert host == list(keyframe.host_counts)
        found = {
            seq.owner: [block for block in seq.table if block != NULL_ENTRY]
            for seq in keyframe.sequences
        }
        assert self.comparable(found) == self.comparable(self.tables)
        waits = {
            seq.owner: (seq.cause, [seq.blocker] if seq.blocker else [])
            for seq in keyframe.sequences
            if seq.cause and seq.flags
        }
        assert waits == {owner: wait for owner, wait in self.waits.items() if wait}
