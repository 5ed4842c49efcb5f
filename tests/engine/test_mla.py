"""Multi-head latent attention: its cache, its two ways to attend, and the engine over it."""

import dataclasses

import pytest
import torch
from torch.nn import functional

from engine.model.kv_formats import KV_FORMATS, kv_format
from engine.model.mla_cache import LatentCache, LatentShape
from engine.model.random_mla import RANDOM_MLA_CONFIG, random_mla_weights
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.runner import StepPlan
from tests.engine.factories_model import (
    Workload,
    run_engine,
    run_step,
    runner_of,
    seeded_prompts,
    sequence_of,
)

BLOCK_SIZE = 8
# DeepSeek-V2's proportions, and a variant whose queries are not compressed.
COMPRESSED = RANDOM_MLA_CONFIG
PLAIN_QUERIES = dataclasses.replace(RANDOM_MLA_CONFIG, query_rank=None, value_dim=24)


def plain_logits(config, weights, token_ids):
    """The last token's logits in fp64: every head's keys and values written out, no cache."""
    hidden = weights.embedding.double()[token_ids]
    num, dim, rank = len(token_ids), config.rope_dim, config.latent_rank
    frequencies = config.rope_base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(num, dtype=torch.float64)[:, None, None] * frequencies

    def rotate(heads):
        pairs = torch.view_as_complex(heads.reshape(num, -1, dim // 2, 2).contiguous())
        return torch.view_as_real(pairs * torch.exp(1j * angles)).reshape(heads.shape)

    def norm(rows, weight):
        mean = rows.square().mean(-1, keepdim=True)
        return rows / (mean + config.norm_epsilon).sqrt() * weight.double()

    for layer in weights.layers:
        normed = norm(hidden, layer.attention_norm)
        source = normed
        if layer.query_compression is not None:
            source = norm(
                normed @ layer.query_compression.down.double(), layer.query_compression.norm
            )
        query = (source @ layer.query.double()).view(num, config.num_heads, -1)
        latent = normed @ layer.latent.double()
        compressed = norm(latent[:, :rank], layer.latent_norm)
        key = torch.einsum("sr,hdr->shd", compressed, layer.heads.key.double())
        value = torch.einsum("sr,hrd->shd", compressed, layer.heads.value.double())
        shared = rotate(latent[:, None, rank:]).expand(num, config.num_heads, dim)
        rotated = rotate(query[..., config.nope_dim :])
        query = torch.cat((query[..., : config.nope_dim], rotated), dim=-1)
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1),
            torch.cat((key, shared), dim=-1).transpose(0, 1),
            value.transpose(0, 1),
            is_causal=True,
        ).transpose(0, 1)
        hidden = hidden + attended.reshape(num, -1) @ layer.attention_output.double()
        gate, up = (norm(hidden, layer.mlp_norm) @ layer.gate_up.double()).chunk(2, dim=1)
        hidden = hidden + (gate * gate.sigmoid() * up) @ layer.down.double()
    return (norm(hidden, weights.norm) @ weights.output.double().T)[-1]


def tokens(num, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 512, (num,), generator=generator).tolist()


def logits_in_steps(config, token_ids, steps, **settings):
    """The last step's logits, when a sequence's tokens run in steps of these sizes."""
    runner = runner_of((config, random_mla_weights(7, config)), block_size=BLOCK_SIZE, **settings)
    blocks = torch.randperm(64, generator=torch.Generator().manual_seed(2)).tolist()[:8]
    sequence = sequence_of(token_ids, blocks=blocks, block_size=BLOCK_SIZE)
    for num_new in steps:
        logits = runner._model.forward(runner._pack(StepPlan(0, [sequence], [num_new])))
        sequence.num_computed_tokens += num_new
    return logits[0].double()


@pytest.mark.parametrize("config", [COMPRESSED, PLAIN_QUERIES], ids=["compressed", "plain"])
@pytest.mark.parametrize(
    "steps",
    [(45,), (44, 1), (20, 25), (20, 17, 1, 1, 1, 5), (1,) * 45],
    ids=["expanded", "absorbed", "expanded over blocks", "both", "absorbed throughout"],
)
def test_expanded_prefill_and_absorbed_decode_give_the_plain_models_logits(config, steps):
    token_ids = tokens(45)

    logits = logits_in_steps(config, token_ids, steps)

    expected = plain_logits(config, random_mla_weights(7, config), token_ids)
    assert (logits - expected).abs().max() < 1e-4


def test_deepseeks_own_sizes_attend_alike_in_both_ways():
    config = dataclasses.replace(
        RANDOM_MLA_CONFIG, latent_rank=512, rope_dim=64, nope_dim=128, value_dim=128, num_layers=1
    )
    token_ids = tokens(20)

    expanded = logits_in_steps(config, token_ids, (20,))
    absorbed = logits_in_steps(config, token_ids, (1,) * 20)

    assert (expanded - absorbed).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("name", "per_layer"),
    [("fp32", 2304), ("fp16", 1152), ("bf16", 1152), ("int8", 580), ("fp8", 576)],
)
def test_a_token_keeps_576_numbers_a_layer_at_512_and_64(name, per_layer):
    shape = LatentShape(num_layers=3, num_blocks=5, block_size=4, latent_rank=512, rope_dim=64)
    cache = LatentCache(shape, kv_format=kv_format(name), num_host_blocks=2)

    assert [tuple(latents.shape) for latents in cache.latents] == [(5, 4, 576)] * 3
    assert shape.bytes_per_token(cache.format) == 3 * per_layer
    assert cache.num_bytes == 3 * per_layer * 5 * 4
    assert cache.num_host_bytes == 3 * per_layer * 2 * 4


def test_61_layers_of_512_and_64_take_70272_bytes_a_token_in_bf16():
    shape = LatentShape(num_layers=61, num_blocks=1, block_size=1, latent_rank=512, rope_dim=64)

    assert shape.bytes_per_token(kv_format("bf16")) == 70_272


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_latent_blocks_are_copied_and_swapped_bit_for_bit(name):
    cache = LatentCache(LatentShape(2, 6, 4, 32, 8), kv_format=kv_format(name), num_host_blocks=3)
    drawn = torch.randn(24, 40, generator=torch.Generator().manual_seed(1))
    for layer in range(2):
        cache.store(layer, latents=drawn, slots=torch.arange(24))

    def read(block_ids):
        buffer = torch.empty(len(block_ids) * 4 * 40)
        return cache.gather(1, torch.tensor(block_ids), out=buffer)

    before = read([2, 5])
    cache.swap_out([(2, 1), (5, 0)])
    cache.copy_blocks([(0, 2), (1, 5)])
    cache.swap_in([(1, 3), (0, 4)])

    assert torch.equal(read([3, 4]), before)
    assert torch.equal(read([2, 5]), read([0, 1]))


@pytest.mark.parametrize("name", sorted(KV_FORMATS))
def test_a_runner_with_latent_attention_says_what_a_token_weighs(name):
    model = (RANDOM_MLA_CONFIG, random_mla_weights(3))

    description = runner_of(model, kv_format=name).describe()

    weight = {"fp32": 160, "fp16": 80, "bf16": 80, "int8": 44, "fp8": 40}[name]
    assert (description.kv_format, description.bytes_per_token) == (name, 2 * weight)
    assert (description.model, description.sliding_window) == ("random-mla-2x64", None)


@pytest.mark.parametrize(
    ("num_blocks", "settings"),
    [
        (400, {"max_batch": 16, "token_budget": 2048, "prefix_caching": False}),
        (400, {"max_batch": 8, "token_budget": 45, "prefix_caching": True}),
        (40, {"max_batch": 8, "token_budget": 256, "prefix_caching": False}),
    ],
    ids=["batched", "chunked and prefix cached", "preempted"],
)
def test_the_engine_answers_over_latents_as_each_request_alone(num_blocks, settings):
    model = (RANDOM_MLA_CONFIG, random_mla_weights(3))
    prompts = seeded_prompts(lambda text: list(text.encode()), count=16, num_words=(1, 12))
    workload = Workload([prompt[:120] for prompt in prompts], num_outputs=12)

    answers = run_engine(
        runner_of(model, num_blocks=num_blocks, block_size=BLOCK_SIZE), workload, **settings
    )

    assert (answers.preemptions > 0) == (num_blocks < 400)
    for prompt, answer in zip(workload.prompts, answers.token_ids, strict=True):
        alone = runner_of(model, block_size=BLOCK_SIZE)
        sequence = sequence_of(prompt, blocks=range(64), block_size=BLOCK_SIZE)
        assert answer == [run_step(alone, [sequence])[0] for _ in range(12)]


@pytest.mark.parametrize("name", ["fp32", "int8", "fp8"])
def test_latents_that_were_swapped_to_the_host_answer_as_if_they_had_stayed(name):
    model = (RANDOM_MLA_CONFIG, random_mla_weights(3))
    workload = Workload([tokens(40, seed=seed) for seed in range(6)], num_outputs=24)

    runner = runner_of(
        model, num_blocks=24, block_size=BLOCK_SIZE, kv_format=name, num_host_blocks=40
    )
    swapping = {"host_blocks": 40, "preemption": PreemptionPolicy.SWAP, "prefix_caching": False}
    answers = run_engine(runner, workload, max_batch=6, watermark_ratio=0.0, **swapping)

    assert answers.preemptions > 0
    for prompt, answer in zip(workload.prompts, answers.token_ids, strict=True):
        alone = runner_of(model, block_size=BLOCK_SIZE, kv_format=name)
        sequence = sequence_of(prompt, blocks=range(8), block_size=BLOCK_SIZE)
        assert answer == [run_step(alone, [sequence])[0] for _ in range(24)]
