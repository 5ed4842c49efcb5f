"""A random but legal stream gives exactly what a ledger of plain loops gives, however it is cut."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agent.ledger.ledger import Ledger
from agent.rollups.scalars import COUNTERS, LATENCY_INDEX
from tests.agent.factories_ledger import Stored, follow, new_ledger, plain, same_rows
from tests.agent.factories_stream import batches, record

seeds = st.integers(0, 2**32)
quick = settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking a stream takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def stream_of(tmp_path_factory):
    def build(seed: int, num_acts: int = 200, **options):
        return record(tmp_path_factory.mktemp("journal"), seed, num_acts, **options)

    return build


@quick
@given(seeds)
def test_blocks_and_holders_equal_the_plain_ledger(stream_of, seed):
    stream = stream_of(seed)

    ledger, _ = follow(stream)
    core, slow = ledger.core, plain(stream, 24)
    core.owners.references.settle(core.owners.held)
    references = core.owners.references
    holders = core.owners.owner[references.slot]

    assert core.blocks.count.tolist() == [block.count for block in slow.blocks]
    assert core.blocks.state.tolist() == [block.state for block in slow.blocks]
    assert core.blocks.hash_known.tolist() == [block.hash_known for block in slow.blocks]
    for number, block in enumerate(slow.blocks):
        assert sorted(holders[references.block == number].tolist()) == sorted(block.holders)
    assert slow.audits_failed == 0


@quick
@given(seeds)
def test_every_second_equals_the_plain_ledger(stream_of, seed):
    stream = stream_of(seed)

    _, stored = follow(stream, max_events=61)
    slow = plain(stream, 24)

    assert stored.total(1, "outlived_block_ns") == slow.outlived_ns
    assert stored.total(1, "finished") == slow.requests_ended
    for name in ("allocated", "shared", "freed", "evicted", "cached_new"):
        mine = {t: n for t, n in stored.sums(1, name).items() if n}
        assert mine == {t: s.counters[name] for t, s in slow.seconds.items() if s.counters[name]}
    active = stored.sums(1, "active_block_ns")
    assert {t: n for t, n in active.items() if n} == {
        t: s.active_ns for t, s in slow.seconds.items() if s.active_ns
    }
    at_end = stored.sums(1, "active_blocks")
    assert at_end == {t: slow.seconds[t].active_at_end for t in at_end}
    waited = {
        (t, c): n for (tier, t, f, c), n in stored.labelled.items() if (tier, f) == (1, "wait_ns")
    }
    assert waited == {
        (t, cause): ns for t, s in slow.seconds.items() for cause, ns in s.waited_ns.items()
    }


@quick
@given(seeds)
def test_what_each_sequence_waited_and_paid_equals_the_plain_ledger(stream_of, seed):
    stream = stream_of(seed)

    ledger, stored = follow(stream, max_events=200)
    slow = plain(stream, 24)
    ledger.core.owners.references.settle(ledger.core.owners.held)

    assert stored.requests.keys() == slow.sequences.keys()
    for owner, sequence in slow.sequences.items():
        row = stored.requests[owner]
        if sequence.ended:
            assert row.peak_blocks == sequence.peak
            assert row.wait_ns == {cause: ns for cause, ns in sequence.waits.items() if ns}
            assert row.wait_after_preempt_ns == sequence.after_preempt_ns
            assert np.isclose(row.block_seconds, sequence.block_ns / 1e9, rtol=1e-9, atol=1e-9)
            assert row.blocked_others_ns == sequence.blocked_others_ns
            assert row.parent == (0 if sequence.request == owner else sequence.request)
    paid = ledger.core.owners.paid_now(ledger.core.blocks, ledger.core.t_ns)
    for owner, slot in ledger.core.owners.slots.items():
        assert np.isclose(paid[slot], slow.sequences[owner].block_ns, rtol=1e-9, atol=1.0)
    lifetimes = ledger.core.latencies.totals[LATENCY_INDEX["block_lifetime"]]
    assert (lifetimes.count, lifetimes.sum_ns) == (len(slow.lifetimes_ns), sum(slow.lifetimes_ns))


@quick
@given(seeds, st.integers(5, 90), st.integers(1, 5))
def test_cutting_the_stream_elsewhere_changes_nothing_and_every_law_holds(
    stream_of, seed, max_events, take_each
):
    stream = stream_of(seed)

    whole, stored = follow(stream)
    cut, stored_cut = follow(stream, max_events=max_events, take_each=take_each)

    same_rows(stored, stored_cut)
    assert stored.failures == stored_cut.failures == []
    assert whole.live().stored == cut.live().stored
    assert whole.live().audits_passed == cut.live().audits_passed > 0


@quick
@given(seeds, st.integers(5, 60), st.integers(0, 20))
def test_an_agent_that_resumes_goes_on_as_if_it_had_never_stopped(
    stream_of, seed, max_events, stop_after
):
    stream = stream_of(seed, segment_bytes=16_384)
    _, expected = follow(stream, max_events=max_events)

    stored, ledger, snapshot, chunks, seq = Stored(), None, None, [], 0
    for number, batch in enumerate(batches(stream, max_events=max_events)):
        if number == stop_after and ledger is not None:
            ledger = Ledger.resume(snapshot)
            for blob in chunks:
                ledger.replay(blob)
            ledger.replayed_to(seq)
        ledger = ledger or new_ledger(batch)
        ledger.apply(batch)
        delta = ledger.take()
        stored.put(delta)
        chunks += [chunk.blob for chunk in delta.chunks]
        seq = delta.seq
        if delta.snapshot is not None:
            snapshot, chunks = delta.snapshot, []
    stored.put(ledger.take())  # without news: what was held back of coarse tiers

    same_rows(expected, stored)
    assert stored.failures == []
    for counter in COUNTERS:
        assert stored.total(1, counter) == stored.total(3600, counter)
        assert stored.total(1, counter) == ledger.live().counters[counter]
