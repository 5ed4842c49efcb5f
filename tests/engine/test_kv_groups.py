"""Models with a window in some layers: each KV group has its own blocks and gives back its own."""

import dataclasses

import pytest
import torch

from engine.block_table import NULL_BLOCK
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.errors import ConfigError
from engine.memory_plan import plan_memory
from engine.model.kv_formats import KV_FORMATS
from engine.model.kv_quality import text_logits
from engine.model.layer_windows import KvGroup, kv_groups
from engine.model.open_model import OpenedModel, open_model
from engine.model.paged_model import CacheSettings
from engine.model.random_model import random_weights
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.server.torch_loading import Device, memory_request
from engine.table_span import TableSpan
from kvpulse.events import FinishReason, RejectReason
from tests.engine.factories_beams import requests_of, run_requests, seeded_prompt
from tests.engine.factories_engine import make_engine, make_request, run_until_done
from tests.engine.factories_model import runner_of
from tests.engine.test_attention_kinds import config_of, plain_logits
from tests.engine.test_torch_loading import make_options

BLOCK = 4
WINDOW = 6
# Of two layers of five the window, so that a block has two layers, and one block lacks one.
CONFIG = dataclasses.replace(
    config_of(sliding_window=WINDOW, full_layers=frozenset({0, 2, 3})), num_layers=5
)
MODEL = (CONFIG, random_weights(9, CONFIG))


def mixed_engine(**settings):
    """Return a simulated engine with one group without a window and two with one of 6."""
    return make_engine(**{"groups": (None, WINDOW, WINDOW), "total_blocks": 60, **settings})


def only(engine):
    (seq,) = engine._scheduler.live.values()
    return seq


def test_layers_lie_in_groups_of_the_rarer_kinds_size():
    groups = kv_groups(6, full_layers={1, 4}, window=8)

    assert groups == (KvGroup((1, 4), None), KvGroup((0, 2), 8), KvGroup((3, 5), 8))


def test_a_kind_that_has_hardly_more_layers_is_one_group_and_the_other_has_empty_places():
    groups = kv_groups(9, full_layers={0, 1, 2, 3}, window=8)

    assert [group.layers for group in groups] == [(0, 1, 2, 3), (4, 5, 6, 7, 8)]


def test_a_window_as_long_as_the_context_is_none():
    config = dataclasses.replace(CONFIG, sliding_window=CONFIG.max_context)

    assert config.kv_groups == (KvGroup((0, 1, 2, 3, 4), None),)


@pytest.mark.parametrize("num_layers", [1, 2, 5, 12, 28])
@pytest.mark.parametrize("num_full", [0, 1, 3, 11, 28])
def test_every_layer_lies_in_one_group_and_none_is_larger_than_the_block(num_layers, num_full):
    full = set(range(min(num_full, num_layers - 1)))

    groups = kv_groups(num_layers, full_layers=full, window=8)

    assert sorted(layer for group in groups for layer in group.layers) == list(range(num_layers))
    assert all((group.window is None) == (group.layers[0] in full) for group in groups)
    assert [group.window is not None for group in groups] == sorted(
        group.window is not None for group in groups
    )


@pytest.mark.parametrize("kv_format", sorted(KV_FORMATS))
def test_the_bytes_of_a_block_are_those_of_one_groups_layers(kv_format):
    runner = runner_of(MODEL, num_blocks=10, block_size=BLOCK, kv_format=kv_format)
    description = runner.describe()

    # Three groups of two layers: five layers, and one place that stays empty.
    of_layer = 2 * CONFIG.num_kv_heads * KV_FORMATS[kv_format].bytes_per_vector(CONFIG.head_dim)
    assert description.windows == (None, None, WINDOW)
    assert description.bytes_per_token == 6 * of_layer
    assert runner.kv.num_bytes == 10 * BLOCK * 2 * of_layer


def test_each_group_gives_back_what_its_own_window_leaves_behind():
    engine = mixed_engine()
    engine.submit(make_request(prompt_tokens=10, max_tokens=40))
    for _ in range(4):
        engine.step()

    table = only(engine).block_table

    # 13 tokens are computed; under the window of 6 the next one sees the positions from 8 on.
    assert only(engine).num_computed_tokens == 13
    assert NULL_BLOCK not in table.block_ids[::3]
    assert table.block_ids[1::3][:2] == table.block_ids[2::3][:2] == [NULL_BLOCK] * 2
    assert len(table.held_ids) == 4 + 2 + 2 == engine._pool.num_active


@pytest.mark.parametrize("prompt_tokens", [6, 200])
def test_a_long_context_holds_its_full_groups_and_the_windows_of_the_others(prompt_tokens):
    engine = mixed_engine(total_blocks=250, max_context=400, token_budget=8)
    engine.submit(make_request(prompt_tokens=prompt_tokens, max_tokens=390 - prompt_tokens))

    most_windowed = 0
    while engine.has_work:
        engine.step()
        engine.check()
        if engine.has_work:
            held = len(only(engine).block_table.held_ids)
            most_windowed = max(most_windowed, held - len(only(engine).block_table) // 3)

    # ceil((6 + 8 - 2) / 4) + 1 blocks of each group with a window, of up to 98.
    assert most_windowed <= 2 * 4
    assert engine.accounts().finished_by_reason == {"length": 1}


def test_what_a_mixed_model_may_need_is_asked_of_the_pool_and_no_more():
    engine = mixed_engine(total_blocks=58, max_context=400, token_budget=8)

    # 50 blocks of the group without a window, and 4 of each with one.
    assert engine.submit(make_request(prompt_tokens=180, max_tokens=20)).accepted
    refused = engine.submit(make_request(prompt_tokens=190, max_tokens=20)).rejection
    events = run_until_done(engine)

    assert (refused.reason, refused.needed) == (RejectReason.EXCEEDS_POOL, 53 + 8)
    assert events[-1].finish_reason is FinishReason.LENGTH


def test_a_hit_needs_of_a_windowed_group_only_what_the_next_token_sees():
    engine = mixed_engine()
    engine.submit(make_request(prompt_tokens=40, max_tokens=1, prefix="abcdefghij"))
    run_until_done(engine)
    pool, first = engine._pool, engine._cache
    hashes = first._derived(_hashes_of(engine, "abcdefghij"))
    for place in (1, 2, 4, 7):  # of stretches 0 to 2, in groups 1 and 2
        forget(pool, hashes[place])
    engine.submit(make_request(prompt_tokens=44, max_tokens=1, prefix="abcdefghij"))

    engine.step()
    engine.check()

    assert engine.accounts().prefix_hit_tokens == 40
    assert pool.num_shared == 10 + 2 + 2


def test_a_hit_ends_where_one_group_lacks_what_the_next_token_sees():
    engine = mixed_engine()
    engine.submit(make_request(prompt_tokens=40, max_tokens=1, prefix="abcdefghij"))
    run_until_done(engine)
    hashes = engine._cache._derived(_hashes_of(engine, "abcdefghij"))
    forget(engine._pool, hashes[3 * 8 + 2])  # stretch 8 in group 2
    engine.submit(make_request(prompt_tokens=44, max_tokens=1, prefix="abcdefghij"))

    engine.step()
    engine.check()

    # Positions 32 to 35 are lost to one group: the token at 32 does not see them.
    assert engine.accounts().prefix_hit_tokens == 32


def _hashes_of(engine, prefix):
    request = make_request(4 * len(prefix), prefix=prefix)
    return list(request.simulated.block_hashes)


def forget(pool, content_hash):
    """Evict one cached block, wherever it stands in the order."""
    block = pool.block_with(content_hash)
    others = [b for b in pool._order.in_order() if b != block]
    pool._order.take_oldest(len(others) + 1)
    pool._order.append([block], 0)
    pool._evict(1, 0, 0, 1)
    pool._order.append(others, 0)


@pytest.mark.parametrize("total_blocks", [31, 60])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prefix_index": "off", "token_budget": 7},
        {"preemption": PreemptionPolicy.SWAP, "host_blocks": 40, "token_budget": 9},
    ],
)
def test_a_mixed_model_says_what_one_without_blocks_says(total_blocks, settings):
    sampling = SamplingParams(max_tokens=10, ignore_eos=True)
    prompts = [seeded_prompt(seed, length) for seed, length in ((1, 5), (2, 24), (2, 30), (3, 9))]
    runner = runner_of(MODEL, block_size=BLOCK, num_blocks=60, num_host_blocks=40)

    found, accounts = run_requests(
        runner,
        requests_of(prompts, sampling),
        **{"total_blocks": total_blocks, "max_batch": 4, "watermark_ratio": 0.0, **settings},
    )

    if total_blocks == 31:
        assert accounts.preemptions > 0
    for (answer,), prompt in zip(found, prompts, strict=True):
        assert answer.token_ids == plain_answer(prompt, 10)


def plain_answer(prompt, num_tokens):
    token_ids = list(prompt)
    for _ in range(num_tokens):
        token_ids.append(int(plain_logits(*MODEL, token_ids).argmax()))
    return token_ids[len(prompt) :]


def test_a_prompt_found_again_gives_the_same_answer():
    engine = Engine(
        EngineConfig(total_blocks=60, block_size=BLOCK, token_budget=64, max_batch=4),
        runner_of(MODEL, block_size=BLOCK, num_blocks=60),
        clock=SystemClock(),
    )
    prompt = seeded_prompt(4, 30)
    request = Request(prompt_token_ids=prompt, sampling=SamplingParams(max_tokens=8))
    answers = []
    for _ in range(2):
        engine.submit(request)
        answers.append([event.token_id for event in run_until_done(engine)])

    assert engine.accounts().prefix_hit_tokens == 28
    assert answers[0] == answers[1] == plain_answer(prompt, 8)


@pytest.mark.parametrize("fields", [{"n": 3, "temperature": 0.9, "seed": 5}, {"beam_width": 3}])
def test_samples_and_beams_that_give_way_answer_as_those_that_never_do(fields):
    sampling = SamplingParams(max_tokens=14, ignore_eos=True, **fields)
    prompts = [seeded_prompt(seed, 9) for seed in (6, 7)]

    def answers(total_blocks):
        runner = runner_of(MODEL, block_size=BLOCK, num_blocks=120)
        found, accounts = run_requests(
            runner, requests_of(prompts, sampling), total_blocks=total_blocks, watermark_ratio=0.0
        )
        return [[a.token_ids for a in answer] for answer in found], accounts

    calm, _ = answers(120)
    pressed, accounts = answers(52)

    assert accounts.preemptions > 0
    assert pressed == calm


def test_the_tree_is_refused_where_tokens_have_several_blocks():
    with pytest.raises(ConfigError, match="hash or off, for a model in which only some layers"):
        mixed_engine(prefix_index="radix")


def test_forks_copy_the_block_that_they_write_in_every_group():
    engine = mixed_engine()
    engine.submit(make_request(prompt_tokens=10, max_tokens=12, n=4, temperature=0.8))
    engine.step()
    engine.check()
    after_fork = engine._pool.num_active

    engine.step()
    engine.check()

    # Block size 4, 10 tokens: 3 blocks in the full group, 2 within each window of 6.
    assert after_fork == 3 + 2 + 2
    assert engine._scheduler.tables.num_copied == 3 * 3


def test_the_quality_of_a_mixed_model_is_measured_under_its_windows():
    token_ids = seeded_prompt(8, 30)
    model = OpenedModel(*MODEL, open_model("random").text, None)

    logits = text_logits(model, token_ids, CacheSettings(3 * 8, BLOCK))

    for length in (1, 5, 14, 30):
        expected = plain_logits(*MODEL, token_ids[:length])
        assert (logits[length - 1].double() - expected).abs().max() < 1e-4


def test_a_context_of_a_mixed_model_needs_its_full_groups_and_what_the_windows_hold():
    span = TableSpan(16, (None, 4_096, 4_096, 4_096), 2_048)

    assert span.num_needed(0, 32_768) == 2_048 + 3 * 385
    assert span.num_needed(0, 320) == 4 * 20
    assert span.longest(3_203, num_prompt_tokens=100, num_sequences=1) == 32_768
    assert span.longest(80, num_prompt_tokens=100, num_sequences=1) == 320


def test_the_memory_of_a_mixed_model_is_planned_in_blocks_of_one_group(tmp_path):
    options = make_options(tmp_path, "--num-blocks", "auto", "--token-budget", "64")
    model = OpenedModel(*MODEL, open_model("random").text, None)

    request = memory_request(options, model, Device("cpu", torch.float32), 2**26)
    plan = plan_memory(request)

    of_two_layers = 2 * 2 * CONFIG.num_kv_heads * CONFIG.head_dim * 4
    assert request.bytes_per_token["fp32"] == of_two_layers
    assert request.num_blocks_needed == 2 * 128 + 6
    assert "a token in fp32: 512 bytes over the layers of one of 3 KV groups" in plan.lines
