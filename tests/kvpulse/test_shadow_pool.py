"""A shadow follows an allocator: its keyframes equal what the records add up to, at any moment."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvpulse.events import FreeOutcome, Kind, PreemptMode, SequenceState, WaitCause, WaitFlag
from kvpulse.keyframe_decoder import decode_keyframe
from kvpulse.shadow_pool import ShadowPool
from kvpulse.stream_values import expand_words
from tests.kvpulse.factories_journal import batches, of_kind, open_recorder
from tests.waiting import wait_until

BLOCKS = 8
OWNERS = st.integers(1, 3)
IDS = st.lists(st.integers(0, BLOCKS - 1), min_size=1, max_size=5)
ACTS = st.lists(
    st.tuples(st.sampled_from(["allocate", "share", "free", "cache", "evict"]), OWNERS, IDS),
    max_size=40,
)


def replay(read) -> tuple[list[int], set[int]]:
    """Follow the records alone: counts, and which blocks are cached."""
    counts = [0] * BLOCKS
    cached: set[int] = set()
    for batch in read:
        for index, record in enumerate(batch.records):
            kind, flags = int(record["kind"]), int(record["flags"])
            words = expand_words(batch, index).tolist()
            if kind in {Kind.ALLOCATE, Kind.SHARE} or (kind == Kind.FREE and flags != 3):
                for block in words:
                    counts[block] = int(record["aux"])
                    cached.discard(block)
            if kind == Kind.FREE and flags == FreeOutcome.TO_CACHE:
                cached.update(words)
            if kind == Kind.EVICT:
                cached.difference_update(words)
    return counts, cached


def perform(shadow: ShadowPool, act: str, owner: int, ids: list[int]) -> None:
    """Do what a sound allocator could do; what it could not is left out."""
    counts = shadow.snapshot().counts
    if act == "allocate":
        shadow.allocate(owner, [b for b in dict.fromkeys(ids) if counts[b] == 0])
    elif act == "share":
        known = [b for b in dict.fromkeys(ids) if counts[b] or b in shadow.snapshot().cached_blocks]
        shadow.share(owner, known)
    elif act == "free":
        rows = shadow.snapshot().sequences
        own = [block for row in rows if row.owner == owner for block in row.table]
        # Freed twice only where nobody else has it: the pool could not tell whose it took.
        shadow.free(
            owner,
            [
                block
                for at, block in enumerate(ids)
                if own.count(block) == counts[block] or ids[:at].count(block) < own.count(block)
            ],
        )
    elif act == "cache":
        active = [b for b in dict.fromkeys(ids) if counts[b]]
        shadow.cache(owner, active, [b + 1 for b in active])
    else:
        shadow.evict([b for b in dict.fromkeys(ids) if b in shadow.snapshot().cached_blocks])


@settings(max_examples=40, deadline=None)
@given(acts=ACTS)
def test_the_shadow_equals_what_its_records_add_up_to(tmp_path_factory, acts):
    recorder = open_recorder(tmp_path_factory.mktemp("j"), total_blocks=BLOCKS)
    shadow = ShadowPool(recorder)
    for act in acts:
        perform(shadow, *act)
    keyframe = shadow.snapshot()
    recorder.close()

    counts, cached = replay(batches(recorder.directory))
    assert list(keyframe.counts) == counts
    assert set(keyframe.cached_blocks) == cached
    entries = [block for row in keyframe.sequences for block in row.table]
    assert all(entries.count(block) <= counts[block] for block in range(BLOCKS))


def test_one_free_is_stated_run_by_run(record):
    recorder = record()
    shadow = ShadowPool(recorder)
    shadow.allocate(1, [0, 1, 2, 3])
    shadow.share(2, [1])
    shadow.cache(1, [2], [77])

    shadow.free(1, [0, 1, 2, 3, 3])
    recorder.close()

    runs = [
        (int(r["aux"]), FreeOutcome(int(r["flags"])), words)
        for r, words in of_kind(batches(recorder.directory), Kind.FREE)
    ]
    assert runs == [
        (0, FreeOutcome.TO_FREE, [0]),
        (1, FreeOutcome.HELD, [1]),
        (0, FreeOutcome.TO_CACHE, [2]),
        (0, FreeOutcome.TO_FREE, [3]),
        (0, FreeOutcome.REFUSED, [3]),
    ]


def test_a_cached_block_that_is_allocated_is_evicted_first(record):
    recorder = record()
    shadow = ShadowPool(recorder)
    shadow.allocate(1, [4])
    shadow.cache(1, [4], [9])
    shadow.free(1, [4])

    shadow.allocate(2, [4])
    recorder.close()

    (batch,) = batches(recorder.directory)
    assert batch.records["kind"].tolist()[-2:] == [Kind.EVICT, Kind.ALLOCATE]
    assert batch.records["owner"].tolist()[-2:] == [2, 2]
    assert 4 not in shadow.snapshot().hashes


def test_a_sequence_is_followed_through_its_life(record):
    recorder = record()
    shadow = ShadowPool(recorder)
    shadow.arrive(1, 10, 20, 3, priority=4, retry=1)
    shadow.wait(1, WaitCause.POOL, WaitFlag.POOL, 9)
    waiting = shadow.snapshot().sequences[0]
    shadow.admit(1)
    shadow.allocate(1, [5])
    shadow.first_token(1)
    shadow.fork(2, 1)
    shadow.preempt(1, 2, PreemptMode.RECOMPUTE, 12, 1, 0)
    preempted, child = shadow.snapshot().sequences
    shadow.free(1, [5])
    shadow.resume(1, 0)
    shadow.first_token(1)
    shadow.finish(1, 1, (10, 2, 24, 12))
    recorder.close()

    assert waiting[:6] == (1, SequenceState.WAITING, 3, WaitCause.POOL, WaitFlag.POOL, 9)
    assert (waiting.prompt_tokens, waiting.max_tokens, waiting.priority, waiting.retry) == (
        10,
        20,
        4,
        1,
    )
    assert (preempted.state, preempted.preemptions) == (SequenceState.PREEMPTED, 1)
    assert preempted.cause == WaitCause.ENGINE_BUSY
    assert preempted.first_token_ns > 0
    assert (child.owner, child.state, child.parent) == (2, SequenceState.RUNNING, 1)
    assert [row.owner for row in shadow.snapshot().sequences] == [2]
    firsts = of_kind(batches(recorder.directory), Kind.FIRST_TOKEN)
    assert [int(r["flags"]) for r, _ in firsts] == [0, 1]


def test_a_keyframe_in_the_middle_of_an_act_equals_the_records_before_it(record):
    recorder = record(total_blocks=BLOCKS)
    shadow = ShadowPool(recorder)
    wait_until(lambda: recorder._reserver.ready is not None)
    first = recorder._segment
    number = 0
    while recorder._segment is first:
        number += 1
        shadow.allocate(number, [number % BLOCKS, (number + 1) % BLOCKS])
        shadow.share(number + 1, [number % BLOCKS])
        shadow.free(number, [number % BLOCKS, (number + 1) % BLOCKS])
        shadow.free(number + 1, [number % BLOCKS])
        shadow.finish(number, 1, (1, 1, 1, 0))
    recorder.close()

    read = batches(recorder.directory)
    second = next(batch for batch in read if batch.first_in_segment and batch.seq0)
    keyframe, _ = decode_keyframe(expand_words(second, 0))
    before = [batch for batch in read if batch.seq0 < second.seq0]
    assert keyframe.counts == replay(before)[0]
    assert np.sum(keyframe.counts) == sum(len(row.table) for row in keyframe.sequences)
