"""What sharing gave and cost, against numbers worked out by hand."""

import json

import pytest

from engine.commands import replay
from engine.prefix_index.lookup_meter import CallMeter
from engine.sharing_report import IndexCalls
from engine.simulation.cost_model import CostModel
from tests.engine.factories_engine import make_engine, make_request, run_until_done

SECOND = 1_000_000_000
# The simulated model of `factories_engine`: 131,072 bytes a token, and 4 tokens a block.
TOKEN_BYTES = 131_072
BLOCK_BYTES = 4 * TOKEN_BYTES


def step_until(engine, *, steps):
    for _ in range(steps):
        engine.step()


@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_tokens_found_are_bytes_that_were_not_written(kind):
    engine = make_engine(prefix_index=kind)
    engine.submit(make_request(9, 2, prefix="AB"))
    run_until_done(engine)
    engine.submit(make_request(9, 2, prefix="AB"))
    run_until_done(engine)

    report = engine.sharing_report()

    assert report.tokens_not_recomputed == 8
    assert report.tokens_queried == 18
    assert report.net_bytes == 8 * TOKEN_BYTES
    assert report.peak_bytes_not_stored == 0, "they did not run at the same time"
    assert report.block_seconds_not_stored == 0
    assert report.outlived_block_seconds == 0


@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_blocks_that_two_count_on_are_not_stored_twice_while_they_do(kind):
    engine = make_engine(prefix_index=kind, total_blocks=32)
    engine.submit(make_request(9, 40, prefix="AB"))
    engine.step()
    engine.submit(make_request(9, 4, prefix="AB"))
    started_ns = engine._clock.now_ns()
    step_until(engine, steps=4)
    assert len(engine._scheduler.live) == 1
    held_ns = engine._clock.now_ns() - started_ns

    report = engine.sharing_report()

    assert report.peak_bytes_not_stored == 2 * BLOCK_BYTES
    assert report.block_seconds_not_stored == pytest.approx(2 * held_ns / SECOND)
    assert report.outlived_block_seconds == 0, "the one that made them is still there"
    assert report.net_block_seconds == report.block_seconds_not_stored


@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_blocks_that_stay_for_the_sharer_are_counted_from_when_their_first_owner_left(kind):
    engine = make_engine(prefix_index=kind, total_blocks=32)
    engine.submit(make_request(9, 4, prefix="AB"))
    engine.step()
    engine.submit(make_request(9, 12, prefix="AB"))
    step_until(engine, steps=3)
    assert len(engine._scheduler.live) == 1
    left_ns = engine._clock.now_ns()
    run_until_done(engine)
    stayed_ns = engine._clock.now_ns() - left_ns

    report = engine.sharing_report()

    assert stayed_ns > 0
    assert report.outlived_block_seconds == pytest.approx(2 * stayed_ns / SECOND)


def test_duplicates_that_the_tree_saw_are_counted():
    engine = make_engine(prefix_index="radix", total_blocks=32)
    for _ in range(2):
        engine.submit(make_request(8, 2, prefix="AB"))
    run_until_done(engine)

    assert engine.sharing_report().blocks_exchanged == 2


def test_copies_cost_what_they_write():
    engine = make_engine(total_blocks=32, prefix_index="off")
    engine.submit(make_request(10, 4, n=4))
    run_until_done(engine)

    report = engine.sharing_report()

    assert report.blocks_copied == 3
    assert report.bytes_copied == 3 * BLOCK_BYTES
    assert report.tokens_forked == 3 * 10
    assert report.net_bytes == 3 * 10 * TOKEN_BYTES - 3 * BLOCK_BYTES
    # The third block is copied in the pass after the fork; so for no time are 3 blocks shared.
    assert report.peak_bytes_not_stored == 3 * 2 * BLOCK_BYTES


def test_a_prompt_token_costs_what_steps_of_prompts_alone_took():
    engine = make_engine(total_blocks=32)
    engine.submit(make_request(8, 2))
    run_until_done(engine)

    report = engine.sharing_report()

    cost = CostModel(base_ns=10_000_000)
    spent_ns = cost.step_ns(prefill_tokens=8, decode_sequences=0, context_tokens=8)
    assert report.prefill_seconds_per_token == pytest.approx(spent_ns / 8 / SECOND)
    assert report.net_seconds is None, "too few calls for one to be timed"


def test_time_saved_is_less_what_the_index_took():
    engine = make_engine(total_blocks=32, max_queue=200)
    ticks = iter(range(1_000, 10**9, 1_000))
    meters = engine._cache.meters
    for meter in (meters.identify, meters.lookup, meters.offer):
        meter._now_ns = lambda: next(ticks)
    for _ in range(130):
        engine.submit(make_request(9, 8, prefix="AB"))
        run_until_done(engine)

    report = engine.sharing_report()

    assert report.identifications == IndexCalls(130, 2, 130 * 1_000 / SECOND)
    assert report.lookups.num_timed == report.lookups.num_calls // 64 > 0
    spent = [report.identifications, report.lookups, report.offers]
    assert report.net_seconds == pytest.approx(
        report.tokens_not_recomputed * report.prefill_seconds_per_token
        - sum(calls.seconds for calls in spent)
    )


def test_every_64th_call_is_timed_and_stands_for_the_others():
    ticks = iter([100, 350, 1_000, 1_150])
    meter = CallMeter(lambda: next(ticks))
    assert meter.estimated_ns() == 0
    for call in range(1, 129):
        started_ns = meter.start()
        assert bool(started_ns) == (call % 64 == 0)
        if started_ns:
            meter.stop(started_ns)
        elif call < 64:
            assert meter.estimated_ns() is None

    assert (meter.num_calls, meter.num_timed, meter.timed_ns) == (128, 2, 400)
    assert meter.estimated_ns() == 400 * 128 // 2


def test_a_replay_says_what_sharing_gave(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 100 * i, "input_length": 1_100, "output_length": 4, "hash_ids": [1, 2, i]}
        for i in range(3, 8)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [str(trace), "--tenants", "1", "--journal", str(tmp_path)]

    assert replay.main([*arguments, "--json", "--prefix-index", "radix"]) == 0
    sharing = json.loads(capsys.readouterr().out)["sharing"]
    assert sharing["tokens_queried"] == 5 * 1_100
    assert sharing["tokens_not_recomputed"] == 4 * 1_024
    assert sharing["lookups"]["num_calls"] >= 5

    assert replay.main(arguments) == 0
    text = capsys.readouterr().out
    assert "tokens not computed again     4,096" in text
    assert "lookups" in text
