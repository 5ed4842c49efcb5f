"""Multi-head, grouped and multi-query models, with and without windows, against a plain model.

The plain model runs one whole sequence at a time in fp64, with neither cache nor blocks nor fusion.
"""

import dataclasses

import pytest
import torch
from torch.nn import functional

from engine.model.random_model import RANDOM_CONFIG, random_weights
from engine.model.rotary import Llama3Scaling
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
# Query heads over key heads: every head its own, groups, and one key head for all.
KINDS = {"mha": (4, 4), "gqa": (6, 2), "mqa": (6, 1)}


def config_of(kind="gqa", **changes):
    num_heads, num_kv_heads = KINDS[kind]
    return dataclasses.replace(
        RANDOM_CONFIG, num_layers=3, num_heads=num_heads, num_kv_heads=num_kv_heads, **changes
    )


def plain_logits(config, weights, token_ids):
    """The last token's logits, computed as the definition says."""
    hidden = weights.embedding.double()[token_ids]
    num, dim = len(token_ids), config.head_dim
    frequencies = config.rope_base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if config.rope_scaling is not None:
        frequencies = config.rope_scaling.scale(frequencies)
    angles = torch.arange(num, dtype=torch.float64)[:, None, None] * frequencies

    def rotate(heads):
        pairs = torch.view_as_complex(heads.reshape(num, -1, dim // 2, 2).contiguous())
        return torch.view_as_real(pairs * torch.exp(1j * angles)).reshape(heads.shape)

    def norm(rows, weight):
        mean = rows.square().mean(-1, keepdim=True)
        return rows / (mean + config.norm_epsilon).sqrt() * weight.double()

    sizes = [heads * dim for heads in (config.num_heads, config.num_kv_heads, config.num_kv_heads)]
    for index, layer in enumerate(weights.layers):
        rows = norm(hidden, layer.attention_norm) @ layer.query_key_value.double()
        if layer.query_key_value_bias is not None:
            rows = rows + layer.query_key_value_bias.double()
        query, key, value = (part.reshape(num, -1, dim) for part in rows.split(sizes, dim=1))
        ahead = torch.arange(num)[None, :] - torch.arange(num)[:, None]
        seen = ahead <= 0
        if config.sliding_window is not None and index not in config.full_layers:
            seen &= ahead > -config.sliding_window
        attended = functional.scaled_dot_product_attention(
            rotate(query).transpose(0, 1),
            rotate(key).transpose(0, 1),
            value.transpose(0, 1),
            attn_mask=seen,
            enable_gqa=True,
        ).transpose(0, 1)
        hidden = hidden + attended.reshape(num, -1) @ layer.attention_output.double()
        gate, up = (norm(hidden, layer.mlp_norm) @ layer.gate_up.double()).chunk(2, dim=1)
        hidden = hidden + (gate * gate.sigmoid() * up) @ layer.down.double()
    return (norm(hidden, weights.norm) @ weights.output.double().T)[-1]


def step_logits(runner, sequence, num_new):
    """Run one step of one sequence; return the logits of its sampled row, if any."""
    plan = StepPlan(0, [sequence], [num_new])
    logits = runner._model.forward(runner._pack(plan))
    sequence.num_computed_tokens += num_new
    return logits


def tokens(num, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 512, (num,), generator=generator).tolist()


def forget_behind(runner, sequence, windows):
    """Do what the engine does: null the blocks that no later token sees, and reuse them."""
    table = sequence.block_table.block_ids
    for group, window in enumerate(windows):
        if window is None:
            continue
        num_passed = max(0, sequence.num_computed_tokens + 1 - window) // BLOCK_SIZE
        for index in range(group, num_passed * len(windows), len(windows)):
            if table[index] >= 0:
                for layer in (*runner.kv.keys, *runner.kv.values):
                    layer[table[index]] = 1e4
                table[index] = -1


CASES = [
    (kind, window, full_layers)
    for kind in KINDS
    for window, full_layers in [
        (None, ()),
        (1, ()),
        (8, ()),
        (13, ()),
        (64, ()),
        (13, (1,)),
        (5, (0, 2)),
    ]
]


@pytest.mark.parametrize(("kind", "window", "full_layers"), CASES)
def test_chunks_and_decodes_give_the_plain_models_logits(kind, window, full_layers):
    config = config_of(kind, sliding_window=window, full_layers=frozenset(full_layers))
    weights = random_weights(7, config)
    token_ids = tokens(45)
    windows = [group.window for group in config.kv_groups]
    runner = runner_of((config, weights), block_size=BLOCK_SIZE, num_blocks=20)
    blocks = [5, 1, 9, 0, 3, 12, *range(13, 20), 2, 4, 6, 8, 7][: 6 * len(windows)]
    sequence = sequence_of(token_ids, blocks=blocks, block_size=BLOCK_SIZE)

    # A first chunk longer than most windows, another over it, then single tokens.
    for num_new in (20, 17, 1, 1, 1, 1, 1, 1, 1, 1):
        logits = step_logits(runner, sequence, num_new)
        forget_behind(runner, sequence, windows)

    expected = plain_logits(config, weights, token_ids)
    assert sequence.num_computed_tokens == 45
    assert (logits[0].double() - expected).abs().max() < 1e-4


@pytest.mark.parametrize("window", [4, 11, 24])
def test_a_mixed_batch_under_a_window_answers_as_each_sequence_alone(window):
    config = config_of(sliding_window=window)
    model = (config, random_weights(5, config))

    def answers(lengths):
        runner = runner_of(model, block_size=BLOCK_SIZE, num_blocks=64)
        sequences = [
            sequence_of(
                tokens(length, seed=length),
                blocks=range(10 * i, 10 * i + 10),
                block_size=BLOCK_SIZE,
                seq_id=i,
            )
            for i, length in enumerate(lengths)
        ]
        for _ in range(9):
            run_step(runner, sequences)
        return [sequence.token_ids for sequence in sequences]

    together = answers([3, 40, 17, 8, 60])

    assert together == [answers([length])[0] for length in (3, 40, 17, 8, 60)]


def test_tables_under_a_window_begin_where_the_window_does():
    config = config_of(sliding_window=10)
    runner = runner_of((config, random_weights(5, config)), block_size=BLOCK_SIZE)
    sequence = sequence_of(tokens(41), blocks=[-1, -1, -1, 7, 8, 9], block_size=BLOCK_SIZE)
    sequence.num_computed_tokens = 40

    batch = runner._pack(StepPlan(0, [sequence], [1]))

    # Position 40 sees 31 to 40: blocks 3 to 5, and of those slots 7 to 16.
    (group,) = batch.groups
    assert batch.window == 10
    assert group.block_ids.tolist() == [7, 8, 9]
    assert group.own_slots.tolist() == [16]
    assert batch.slots.tolist() == [9 * 8]
    assert (group.mask.flatten() == 0).nonzero().flatten().tolist() == list(range(7, 17))


def test_the_description_gives_the_window_of_each_group_of_layers():
    def described(**changes):
        config = config_of(**changes)
        return runner_of((config, random_weights(1, config))).describe()

    assert (described().sliding_window, described().mask) == (None, "causal")
    assert described(sliding_window=32).sliding_window == 32
    mixed = described(sliding_window=32, full_layers=frozenset({1}))
    assert (mixed.sliding_window, mixed.mask) == (None, "causal, mixed windows")
    assert mixed.windows == (None, 32, 32)


def test_a_model_with_a_window_runs_in_the_engine_as_alone():
    config = config_of(sliding_window=16)
    model = (config, random_weights(5, config))
    prompts = seeded_prompts(lambda text: list(text.encode()), count=12, num_words=(1, 12))
    workload = Workload([prompt[:90] for prompt in prompts], num_outputs=20)

    runner = runner_of(model, block_size=BLOCK_SIZE, num_blocks=400)
    answers = run_engine(runner, workload, max_batch=8, token_budget=50, prefix_caching=False)

    for prompt, answer in zip(workload.prompts, answers.token_ids, strict=True):
        alone = runner_of(model, block_size=BLOCK_SIZE, num_blocks=64)
        sequence = sequence_of(prompt, blocks=range(64), block_size=BLOCK_SIZE)
        assert answer == [run_step(alone, [sequence])[0] for _ in range(20)]


@pytest.mark.parametrize("kv_format", ["fp32", "int8"])
def test_a_window_lets_long_answers_run_in_a_pool_that_could_not_hold_them(kv_format):
    config = config_of(sliding_window=16)
    model = (config, random_weights(5, config))
    workload = Workload([tokens(30, seed=seed) for seed in range(4)], num_outputs=70)

    # 100 tokens are 13 blocks, times four; each needs 3 at a time, and 4 for its prompt.
    runner = runner_of(model, block_size=BLOCK_SIZE, num_blocks=18, kv_format=kv_format)
    answers = run_engine(runner, workload, max_batch=4, watermark_ratio=0.0)

    assert answers.preemptions == 0
    for prompt, answer in zip(workload.prompts, answers.token_ids, strict=True):
        alone = runner_of(model, block_size=BLOCK_SIZE, kv_format=kv_format)
        sequence = sequence_of(prompt, blocks=range(13), block_size=BLOCK_SIZE)
        assert answer == [run_step(alone, [sequence])[0] for _ in range(70)]


def test_llama3_scaling_keeps_short_wavelengths_and_slows_long_ones():
    scaling = Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )
    wavelengths = torch.tensor([10.0, 2047.0, 8193.0, 1e6, 4096.0], dtype=torch.float64)
    frequencies = 2 * torch.pi / wavelengths

    ratio = scaling.scale(frequencies) / frequencies

    # 4,096 makes two turns in 8,192: a third of the way from slow (one) to kept (four).
    expected = torch.tensor([1, 1, 1 / 8, 1 / 8, 1 / 3 + 2 / 3 / 8], dtype=torch.float64)
    assert torch.allclose(ratio, expected)
