"""Snapshot plus chunks give the map of any moment, equal to the ledger that lived through it."""

import numpy as np
import pytest

from agent.block_map import replay_map
from agent.errors import StateError
from kvpulse.events import BlockState
from tests.agent.factories_ledger import new_ledger, plain
from tests.agent.factories_stream import batches, record


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    return record(tmp_path_factory.mktemp("journal"), 11, 500)


@pytest.fixture(scope="module")
def deltas(stream):
    """What was taken, the first with only the keyframe in it."""
    ledger, deltas = None, []
    for batch in batches(stream, max_events=40):
        ledger = ledger or new_ledger(batch)
        ledger.apply(batch)
        deltas.append(
            (ledger.take(), ledger.core.blocks.count.copy(), ledger.core.blocks.state.copy())
        )
    return deltas


def blobs(deltas):
    return [chunk.blob for delta, _, _ in deltas for chunk in delta.chunks]


def test_any_moment_equals_the_ledger_then(deltas):
    first = deltas[0][0].snapshot

    for number, (delta, count, state) in enumerate(deltas[1:-1], start=1):
        if deltas[number + 1][0].chunks[0].t0_ns == delta.t_ns:
            continue  # the moment goes on in the next chunk
        found = replay_map(first.map_blob, blobs(deltas[1:]), at_ns=delta.t_ns)
        assert found.count.tolist() == count.tolist()
        assert found.state.tolist() == state.tolist()


def test_holders_and_owners_at_the_end_equal_the_plain_ledger(stream, deltas):
    slow = plain(stream, 24)

    found = replay_map(deltas[0][0].snapshot.map_blob, blobs(deltas[1:]), at_ns=2**62)

    assert [sorted(owners) for owners in found.owners] == [sorted(b.holders) for b in slow.blocks]
    for block, plain_block in enumerate(slow.blocks):
        if plain_block.holders:
            assert found.owner[block] == found.owners_of(block)[0]
            assert block in found.blocks_of(int(found.owner[block]))
    assert found.hash_known.tolist() == [block.hash_known for block in slow.blocks]
    assert found.exact


def test_a_block_is_full_once_its_content_is_known_and_else_nobody_can_say(stream, deltas):
    slow = plain(stream, 24)

    found = replay_map(deltas[0][0].snapshot.map_blob, blobs(deltas[1:]), at_ns=2**62)

    expected = [
        0 if state == BlockState.FREE else found.block_size if block.hash_known else -1
        for state, block in zip(found.state, slow.blocks, strict=True)
    ]
    assert found.filled.tolist() == expected
    assert {found.block_size, -1} <= set(expected)


def test_beginning_from_any_snapshot_gives_the_same_map(deltas):
    whole = replay_map(deltas[0][0].snapshot.map_blob, blobs(deltas[1:]), at_ns=2**62)
    at = [n for n, (delta, _, _) in enumerate(deltas) if delta.snapshot is not None]

    assert len(at) >= 2
    for number in at:
        part = replay_map(
            deltas[number][0].snapshot.map_blob, blobs(deltas[number + 1 :]), at_ns=2**62
        )
        assert part.count.tolist() == whole.count.tolist()
        assert part.owners == whole.owners
        assert part.tenant[part.count > 0].tolist() == whole.tenant[whole.count > 0].tolist()
        assert np.array_equal(part.since_ns, whole.since_ns)


def test_a_damaged_map_is_refused(deltas):
    blob = deltas[0][0].snapshot.map_blob

    for damaged in (blob[:-3], b"\x07" + blob[1:], blob[:12] + b"\x00" + blob[13:], b""):
        with pytest.raises(StateError):
            replay_map(damaged, [], at_ns=0)
