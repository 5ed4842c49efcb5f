"""Clock, costs, settings and the commands of the simulated engine."""

import json

import pytest

from engine.accounts import SecondsCounter
from engine.block_hashers import SimulatedBlockHasher, TokenBlockHasher
from engine.clock import SystemClock, VirtualClock
from engine.commands import bench_pool, bench_simulated, replay
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.request import Request
from engine.sequence import Sequence
from engine.simulation.cost_model import CostModel, CostNoise
from engine.simulation.trace_recording import TraceRun
from engine.tenants import TenantBook
from kvpulse.identity import KeyedHashes
from tests.engine.factories_engine import make_engine, make_request, run_until_done


def test_a_virtual_clock_moves_only_when_told():
    clock = VirtualClock(100)

    clock.advance(5)
    clock.advance_to(50)

    assert clock.now_ns() == 105


def test_a_paced_clock_waits_for_the_wall_and_never_hurries_it():
    wall = [1_000_000_000]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        wall[0] += round(seconds * 1e9)

    clock = VirtualClock(speed=2.0, wall_ns=lambda: wall[0], sleep=sleep)
    clock.advance(1_000_000_000)
    wall[0] += 3_000_000_000  # the machine was slow
    clock.advance(1_000_000_000)

    assert slept == [0.5]


def test_the_system_clock_does_not_go_back():
    clock = SystemClock()

    assert clock.now_ns() <= clock.now_ns()


def test_a_step_costs_its_parts():
    cost = CostModel(base_ns=1_000, prefill_token_ns=10, decode_sequence_ns=5, context_token_ns=0.5)

    assert cost.step_ns(prefill_tokens=7, decode_sequences=3, context_tokens=100) == 1_135


def test_noise_is_seeded_and_centred():
    def seconds(seed):
        noise = CostNoise(0.1, seed=seed)
        return [noise.apply(1_000_000) for _ in range(2_000)]

    assert seconds(1) == seconds(1) != seconds(2)
    assert sum(seconds(1)) / 2_000 == pytest.approx(1_000_000, rel=0.02)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total_blocks", 0),
        ("block_size", -1),
        ("max_batch", 0),
        ("token_budget", 3),
        ("max_context", 1),
        ("watermark_ratio", 1.0),
        ("audit_interval_ns", 0),
    ],
)
def test_a_setting_that_cannot_work_is_named(name, value):
    with pytest.raises(ConfigError, match=f"{name} is {value}; accepted: ") as caught:
        EngineConfig(**{name: value})

    assert caught.value.exit_code == 2


def test_seconds_are_counted_once_however_often_it_holds_in_them():
    counter = SecondsCounter()
    for holds, at_ms in [(True, 100), (False, 200), (True, 900), (True, 1_100), (False, 2_500)]:
        counter.set(holds, at_ms * 1_000_000)

    assert counter.seconds() == 3


def test_token_hashes_depend_on_what_came_before_on_the_tenant_and_on_the_key():
    def hashes(tokens, tenant="a", key=b"k" * 32):
        seq = Sequence(1, Request(tokens, tenant=tenant), block_size=4)
        hasher = TokenBlockHasher(KeyedHashes(key), block_size=4)
        hasher.extend(seq, 1)
        hasher.extend(seq, 2)
        return seq.block_hashes

    first = hashes([1, 2, 3, 4, 5, 6, 7, 8])
    assert first == hashes([1, 2, 3, 4, 5, 6, 7, 8])
    assert first[1] != hashes([9, 2, 3, 4, 5, 6, 7, 8])[1]
    assert not set(first) & set(hashes([1, 2, 3, 4, 5, 6, 7, 8], tenant="b"))
    assert not set(first) & set(hashes([1, 2, 3, 4, 5, 6, 7, 8], key=b"x" * 32))


def test_what_a_simulated_sequence_generates_is_its_own():
    def hashes(seq_id):
        seq = Sequence(seq_id, make_request(8, 8, prefix="ab"), block_size=4)
        SimulatedBlockHasher().extend(seq, 2)
        SimulatedBlockHasher().extend(seq, 4)
        return seq.block_hashes

    assert hashes(1)[:2] == hashes(2)[:2]
    assert not set(hashes(1)[2:]) & set(hashes(2)[2:])
    assert hashes(1) == hashes(1)


def test_real_prompts_share_blocks_within_a_tenant_only():
    engine = make_engine()
    prompt = tuple(range(12))
    for tenant in ("a", "a", "b"):
        engine.submit(Request(prompt, tenant=tenant))
        run_until_done(engine)

    assert engine.accounts().prefix_hit_tokens == 8


def test_tenants_are_numbered_on_first_use_and_nobody_is_0():
    engine = make_engine()
    book = TenantBook(engine._scheduler.tally)

    assert [book.id_of(alias) for alias in ("", "b", "a", "b")] == [0, 1, 2, 1]
    assert engine._scheduler.tally.defines == 2


def test_a_replay_says_what_the_engine_did(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )

    assert replay.main([str(trace), "--journal", str(tmp_path / "journal"), "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["requests"] == 2
    assert said["finished_by_reason"] == {"stop": 2}
    assert said["events_not_written"] == said["active_blocks"] == 0
    assert 0 < said["cpu_seconds"] < 60
    assert said["directory"].startswith(str(tmp_path / "journal" / "replay"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.jsonl"], 3, "missing.jsonl"),
        (["workload", "--speed", "0"], 2, "number above 0"),
        (["workload", "--tenants", "0"], 2, "1 to 1000"),
        (["workload", "--seconds", "nan"], 2, "not a time that can pass"),
        (["workload", "--max-journal-mib", "0"], 2, "not a positive number"),
        (["workload", "--total-blocks", "0"], 2, "total_blocks is 0"),
    ],
)
def test_a_replay_that_cannot_be_done_says_why(arguments, code, words, tmp_path, capsys):
    try:
        found = replay.main([*arguments, "--journal", str(tmp_path)])
    except SystemExit as ended:
        found = ended.code

    assert found == code
    assert words in capsys.readouterr().err


def test_a_bad_trace_line_ends_a_replay_with_2(tmp_path, capsys):
    trace = tmp_path / "bad.jsonl"
    trace.write_text("{}\n")

    assert replay.main([str(trace), "--journal", str(tmp_path)]) == 2
    assert "line 1" in capsys.readouterr().err


def test_the_pool_benchmark_measures_every_figure(capsys):
    assert bench_pool.main(["--rounds", "1", "--prompts", "20", "--json"]) == 0

    figures = json.loads(capsys.readouterr().out)
    assert figures.pop("emitter") in {"c", "python"}
    names = set(bench_pool.TARGETS_NS)
    parts = ("identify", "match", "match_from_list", "insert")
    index = {f"{kind}_{part}_us" for kind in ("hash", "radix") for part in parts}
    index.add("radix_insert_exchanging_us")
    assert set(figures) == names | {name + "_unrecorded" for name in names} | index | {"seed"}
    assert all(value > 0 for value in figures.values())


def test_the_step_benchmark_measures_every_figure():
    figures = bench_simulated.measure(rounds=1)

    assert set(figures) == {
        "record_us_per_step_16",
        "record_us_per_step_64",
        "sequence_steps_per_cpu_second",
    }
    assert figures["sequence_steps_per_cpu_second"] > 20_000


def test_a_run_keeps_its_whole_journal_unless_told_otherwise():
    assert TraceRun().max_bytes > 10**10
