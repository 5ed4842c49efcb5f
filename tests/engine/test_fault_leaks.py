"""Leaks and double frees: the ledger names what the injector did, block by block."""

from collections import Counter

import pytest

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.faults.leaks import LeakOnCancel, LeakOnCancelParameters, LeakSlow, LeakSlowParameters
from engine.faults.setup import FaultSetup, TruthFile
from kvpulse.events import FinishReason, FreeOutcome, Kind
from tests.engine.factories_engine import make_engine, make_request, run_until_done
from tests.engine.factories_faults import lines_of, records_of, run_with

NAMED_AFTER_NS = 3_000_000_000  # two steps and a second, by the audit after that


def said(lines):
    return {(line["owner"], block) for line in lines for block in line["blocks"]}


def said_in_time(run, name):
    """Leaks that were old enough to be named when the engine ended."""
    latest_ns = run.recorded.engine_ns - NAMED_AFTER_NS
    return said(line for line in run.truth_of(name) if line["t_ns"] < latest_ns)


@pytest.mark.parametrize(
    "fault", ["leak_on_cancel", "leak_slow:every=7", "leak_slow:most_blocks=9"]
)
def test_the_ledger_finds_exactly_the_blocks_and_owners_that_leaked(tmp_path, fault):
    run = run_with(tmp_path, fault)
    name = fault.partition(":")[0]

    assert said_in_time(run, name) <= run.leaked() <= said(run.truth)
    assert len(said_in_time(run, name)) > 2
    assert run.stored.failures == [], "a leak breaks no law: the block is still somebody's"
    assert run.recorded.accounts.leaked_blocks == len({block for _, block in said(run.truth)})


def test_a_healthy_run_leaks_nothing_and_has_no_truth(tmp_path):
    run = run_with(tmp_path)

    assert run.truth == []
    assert run.leaked() == set()
    assert run.recorded.accounts.leaked_blocks == 0


def test_only_cancelled_sequences_leak_on_cancel(tmp_path):
    run = run_with(tmp_path, "leak_on_cancel")

    ends = {
        int(record["owner"]): int(record["aux"])
        for record, _ in records_of(run.recorded.directory, Kind.FINISH)
    }
    assert {ends[owner] for owner, _ in said(run.truth)} == {FinishReason.CANCELLED}


def test_a_slow_leak_takes_every_kth_end_and_few_blocks(tmp_path):
    run = run_with(tmp_path, "leak_slow:every=5,most_blocks=2")

    ended = sum(
        n for reason, n in run.recorded.accounts.finished_by_reason.items() if reason != "rejected"
    )
    assert ended // 5 - 1 <= len(run.truth) <= ended // 5
    assert {len(line["blocks"]) for line in run.truth} == {1, 2}


def test_a_fault_begins_and_ends_when_it_was_told_to(tmp_path):
    run = run_with(tmp_path, "leak_slow:every=1,after_seconds=20,for_seconds=30")

    times = [line["t_ns"] / 1e9 for line in run.truth]
    assert 20 <= min(times) < 25
    assert 45 < max(times) < 50
    assert all(line["wall_ns"] > line["t_ns"] for line in run.truth)


def test_the_same_seed_leaks_the_same_blocks(tmp_path):
    runs = [
        run_with(tmp_path / name, f"leak_slow:every=3,seed={seed}", seconds=30).truth
        for name, seed in (("a", 4), ("b", 4), ("c", 5))
    ]

    assert runs[0] == runs[1] != runs[2]


def test_the_pool_refuses_each_second_free_and_the_ledger_counts_it(tmp_path):
    run = run_with(tmp_path, "double_free:every=4")

    refused = [
        (int(record["owner"]), words)
        for record, words in records_of(run.recorded.directory, Kind.FREE)
        if record["flags"] & 3 == FreeOutcome.REFUSED
    ]
    found = Counter((owner, block) for owner, blocks in refused for block in blocks)
    assert found == Counter(said(run.truth))
    assert run.stored.total(1, "refused_frees") == len(said(run.truth)) > 10
    assert run.leaked() == set()
    assert run.recorded.accounts.active_blocks == 0


def test_a_leak_and_a_double_free_at_once_are_both_found(tmp_path):
    run = run_with(tmp_path, "leak_slow:every=5", "double_free:every=5")

    assert said_in_time(run, "leak_slow") <= run.leaked() <= said(run.truth_of("leak_slow"))
    assert run.leaked()
    assert run.stored.total(1, "refused_frees") == len(said(run.truth_of("double_free"))) > 5


def make_setup(truth=None):
    return FaultSetup(VirtualClock(5), EngineConfig(), truth, wall_clock=lambda: 77)


def test_a_sequence_without_blocks_leaks_none(tmp_path):
    fault = LeakOnCancel(make_setup(), LeakOnCancelParameters())

    assert fault.kept_at_end(1, [], FinishReason.CANCELLED) == []
    assert fault.kept_at_end(1, [3, 4], FinishReason.STOP) == []
    assert fault.kept_at_end(1, [3, 4], FinishReason.CANCELLED) == [3, 4]


def test_entries_of_a_table_that_stand_for_no_block_do_not_leak():
    fault = LeakSlow(make_setup(), LeakSlowParameters(every=1, most_blocks=9))

    assert sorted(fault.kept_at_end(1, [-1, -1, 6], FinishReason.STOP)) == [6]
    assert fault.kept_at_end(1, [-1], FinishReason.STOP) == []


def test_what_leaks_is_said_aloud_and_written_down(tmp_path, caplog):
    truth = tmp_path / "truth.jsonl"
    engine = make_engine(
        faults=LeakOnCancel(make_setup(TruthFile(truth)), LeakOnCancelParameters())
    )
    seq_id = engine.submit(make_request(8, 8)).seq_id
    engine.step()
    blocks = list(engine._scheduler.live[seq_id].block_table.block_ids)

    engine.cancel(seq_id)
    engine.check()

    (line,) = lines_of(truth)
    assert line == {
        "fault": "leak_on_cancel", "t_ns": 5, "wall_ns": 77, "owner": seq_id, "blocks": blocks
    }  # fmt: skip
    assert f"sequence {seq_id} was cancelled and keeps {len(blocks)} blocks" in caplog.text
    engine.submit(make_request(8, 2))
    run_until_done(engine)
    assert engine.accounts().active_blocks == engine.accounts().leaked_blocks == len(blocks)


def test_samples_that_leak_the_block_they_share_leave_its_empty_slots_counted_once():
    clock = VirtualClock()
    setup = FaultSetup(config=EngineConfig(), clock=clock, truth=None, wall_clock=clock.now_ns)
    engine = make_engine(clock=clock, faults=LeakOnCancel(setup, LeakOnCancelParameters()))
    root = engine.submit(make_request(1, 8, n=3)).seq_id
    engine.step()

    engine.cancel(root)

    assert engine._pool.num_active == 1
    assert engine._reports.filled_slots(1) == 1
