"""Trace files in, timed requests out; a bad line is named."""

import contextlib
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError, TraceError
from engine.simulation.trace import read_trace
from engine.simulation.trace_requests import RequestMaker, block_hashes, spread_arrivals
from engine.simulation.workload import WorkloadShape, make_workload
from tests.shared_files import shared_path

GOOD = {"timestamp": 3_000, "input_length": 1_000, "output_length": 7, "hash_ids": [0, 5]}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def mooncake(tmp_path, *changes, lines=()):
    path = tmp_path / "trace.jsonl"
    rows = [json.dumps({**GOOD, **change}) for change in changes]
    path.write_text("\n".join([*rows, *lines]) + "\n")
    return path


def written(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_mooncake_rows_are_read_in_order_of_arrival_from_the_first(tmp_path):
    path = mooncake(tmp_path, {"timestamp": 9_000}, {"timestamp": 3_000.5, "output_length": 2})

    trace = read_trace(path)

    assert trace.tokens_per_id == 512
    assert [row.arrival_ns for row in trace.rows] == [0, 5_999_500_000]
    assert [row.num_output_tokens for row in trace.rows] == [2, 7]
    assert trace.rows[0].content_ids == (0, 5)


def test_ids_per_16_tokens_are_told_from_their_number(tmp_path):
    path = mooncake(tmp_path, {"input_length": 40, "hash_ids": [0, 1, 2]})

    assert read_trace(path).tokens_per_id == 16


def test_azure_times_keep_their_seven_digits(tmp_path):
    path = written(
        tmp_path,
        AZURE + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319607,3180,8\n",
    )

    rows = read_trace(path).rows

    assert [row.arrival_ns for row in rows] == [0, 52_000_700]
    assert (rows[1].num_prompt_tokens, rows[1].num_output_tokens) == (3180, 8)


def test_burstgpt_rows_without_output_are_skipped_and_counted(tmp_path):
    path = written(
        tmp_path,
        BURST + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,0,10,API log\n",
    )

    trace = read_trace(path)

    assert len(trace.rows) == 1
    assert trace.num_skipped == 1


BAD_LINES = [
    ({"timestamp": -1}, "timestamp"),
    ({"timestamp": "soon"}, "timestamp"),
    ({"timestamp": float("nan")}, "timestamp"),
    ({"input_length": 0}, "input_length"),
    ({"input_length": 10**12}, "input_length"),
    ({"output_length": True}, "output_length"),
    ({"output_length": 1.5}, "output_length"),
    ({"hash_ids": [1]}, "hash_ids"),
    ({"hash_ids": ["a", "b"]}, "hash_ids"),
    ({"hash_ids": None}, "hash_ids"),
]


@pytest.mark.parametrize(("change", "named"), BAD_LINES)
def test_a_bad_mooncake_line_is_named_with_what_would_be_accepted(tmp_path, change, named):
    path = mooncake(tmp_path, {}, change)

    with pytest.raises(TraceError, match=named) as caught:
        read_trace(path)

    assert caught.value.line == 2
    assert "accepted" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one,two\n1,2\n",
        b"\xff\xfe\x00garbage",
        AZURE,
        AZURE + "yesterday,1,2\n",
        AZURE + "2023-11-16 18:17:03.97,1\n",
        AZURE + "2023-11-16 18:17:03.97,-4,2\n",
        AZURE + "2023-11-16 18:17:03.x,4,2\n",
        AZURE + '2023-11-16 18:17:03.97,"4,2\n',
        BURST + "inf,m,1,1,2,log\n",
        BURST + "1,m,one,1,2,log\n",
    ],
)
def test_a_bad_file_is_refused_with_the_line(tmp_path, text):
    with pytest.raises(TraceError, match=r"line \d+: .*accepted: "):
        read_trace(written(tmp_path, text))


@pytest.mark.parametrize("line", ["[1, 2]", "{", "null", '{"timestamp": 1}', "[" * 100_000])
def test_a_line_that_is_no_request_is_refused(tmp_path, line):
    with pytest.raises(TraceError) as caught:
        read_trace(mooncake(tmp_path, {}, lines=[line]))

    assert caught.value.line == 2


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "trace.jsonl"
    path.write_bytes(data)
    with contextlib.suppress(TraceError):
        assert read_trace(path).rows


def test_arrivals_of_one_coarse_tick_are_spread_until_the_next():
    ticks = [0] * 50 + [3_000_000_000] * 50 + [6_000_000_000] * 50

    spread = spread_arrivals(ticks, seed=1)

    assert spread == sorted(spread)
    assert sum(t < 3_000_000_000 for t in spread) == 50
    assert max(b - a for a, b in pairwise(spread)) < 600_000_000
    assert spread == spread_arrivals(ticks, seed=1) != spread_arrivals(ticks, seed=2)


def test_arrivals_that_differ_are_left_alone():
    times = [0, 10, 10, 2_000_000_000, 5_000_000_000]

    assert spread_arrivals(times, seed=1) == times


def test_equal_leading_ids_give_equal_leading_hashes_within_a_scope():
    def hashes(ids, scope):
        return block_hashes(ids, tokens_per_id=512, block_size=16, num_blocks=64, scope=scope)

    first, second = hashes([0, 7], 1), hashes([0, 8], 1)

    assert first[:32] == second[:32]
    assert not set(first[32:]) & set(second[32:])
    assert len(set(first)) == 64
    assert not set(first) & set(hashes([0, 7], 2))


def test_blocks_larger_than_an_id_take_the_last_id_they_cover():
    def hashes(ids):
        return block_hashes(ids, tokens_per_id=16, block_size=32, num_blocks=2, scope=0)

    assert hashes([0, 1, 2, 3])[0] == hashes([0, 1, 9, 9])[0]
    assert hashes([0, 1, 2, 3])[1] != hashes([0, 1, 2, 9])[1]


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match="block_size is 24"):
        block_hashes([1], tokens_per_id=512, block_size=24, num_blocks=1, scope=0)


def test_a_conversation_stays_with_one_of_the_tenants(tmp_path):
    trace = read_trace(shared_path("traces/mooncake_conversation_0-1800s.jsonl"))

    requests = RequestMaker(16).requests(trace)

    assert len(requests) == 5_719
    assert {timed.request.tenant for timed in requests} == {f"tenant-{i}" for i in range(1, 9)}
    tenants = {}
    for row, timed in zip(trace.rows, requests, strict=True):
        talk = row.content_ids[min(1, len(row.content_ids) - 1)]
        assert tenants.setdefault(talk, timed.request.tenant) == timed.request.tenant
        assert len(timed.request.simulated.block_hashes) == row.num_prompt_tokens // 16


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("azure2023_code_until-1855.csv", 7_000),
        ("azure2023_conv_until-1855.csv", 13_927),
        ("mooncake_synthetic_full.jsonl", 3_993),
        ("sharegpt300_blk16_hashes.jsonl", 300),
    ],
)
def test_the_published_traces_are_read_whole(name, rows):
    assert len(read_trace(shared_path("traces/" + name)).rows) == rows


def test_the_workload_has_the_traces_shape_and_is_the_same_for_a_seed():
    shape = WorkloadShape(num_requests=1_000)

    requests = make_workload(shape, block_size=16)

    assert requests == make_workload(shape, block_size=16)
    assert len({timed.request.tenant for timed in requests}) == 8
    prompts = [timed.request.num_prompt_tokens for timed in requests]
    assert 9_000 < sum(prompts) / len(prompts) < 17_000
    outputs = [timed.request.simulated.num_output_tokens for timed in requests]
    assert 280 < sum(outputs) / len(outputs) < 420
    seconds = requests[-1].at_ns / 1e9
    assert 2.0 < len(requests) / seconds < 4.5
    assert any(timed.cancel_at_ns for timed in requests)
    assert any(prompt > shape.max_context for prompt in prompts)
    seen, hits, blocks = set(), 0, 0
    for timed in requests:
        hashes = timed.request.simulated.block_hashes
        hits += len(seen.intersection(hashes))
        blocks += len(hashes)
        seen.update(hashes)
    assert 0.3 < hits / blocks < 0.6
