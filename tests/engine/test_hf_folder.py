"""Models from safetensors folders, against a plain model written in Hugging Face's own layout."""

import json

import pytest
import torch
from torch.nn import functional

from engine.model.hf_folder.config import read_config, read_end_tokens
from engine.model.open_model import open_model
from engine.model.rotary import LinearScaling, Llama3Scaling
from engine.model.torch_runner import TorchRunner
from engine.runner import StepPlan
from tests.engine.factories_hf import (
    smollm2_as_folder,
    toy_config,
    toy_tensors,
    write_folder,
)
from tests.engine.factories_model import (
    Workload,
    run_engine,
    seeded_prompts,
    sequence_of,
    smollm2,
    smollm2_path,
    smollm2_tokenizer,
)

BLOCK_SIZE = 8
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def rotate_halves(heads, angles):
    """Turn number i of a head with number i + head_dim / 2, as Hugging Face's models do."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat(
        (
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ),
        dim=-1,
    )


def plain_logits(config, tensors, token_ids, *, frequencies=None, window_of=lambda layer: None):
    """The last token's logits in fp64: one sequence, no cache, nothing fused or reordered."""
    weights = {name: tensor.double() for name, tensor in tensors.items()}
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    num = len(token_ids)
    if frequencies is None:
        exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
        frequencies = config["rope_theta"] ** (-exponents)
    angles = torch.arange(num, dtype=torch.float64)[:, None, None] * frequencies
    hidden = weights["model.embed_tokens.weight"][token_ids]

    def norm(rows, name):
        mean = rows.square().mean(-1, keepdim=True)
        return rows / (mean + config["rms_norm_eps"]).sqrt() * weights[name]

    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}"

        def linear(rows, name, prefix=prefix):
            bias = weights.get(f"{prefix}.{name}.bias")
            return functional.linear(rows, weights[f"{prefix}.{name}.weight"], bias)

        rows = norm(hidden, f"{prefix}.input_layernorm.weight")
        query = rotate_halves(linear(rows, "self_attn.q_proj").view(num, heads, dim), angles)
        key = rotate_halves(linear(rows, "self_attn.k_proj").view(num, kv_heads, dim), angles)
        value = linear(rows, "self_attn.v_proj").view(num, kv_heads, dim)
        ahead = torch.arange(num)[None, :] - torch.arange(num)[:, None]
        window = window_of(index)
        seen = (ahead <= 0) if window is None else (ahead <= 0) & (ahead > -window)
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1),
            key.repeat_interleave(heads // kv_heads, dim=1).transpose(0, 1),
            value.repeat_interleave(heads // kv_heads, dim=1).transpose(0, 1),
            attn_mask=seen,
        )
        hidden = hidden + linear(attended.transpose(0, 1).reshape(num, -1), "self_attn.o_proj")
        rows = norm(hidden, f"{prefix}.post_attention_layernorm.weight")
        gated = functional.silu(linear(rows, "mlp.gate_proj")) * linear(rows, "mlp.up_proj")
        hidden = hidden + linear(gated, "mlp.down_proj")
    output = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return functional.linear(norm(hidden, "model.norm.weight"), output)[-1]


def served_logits(folder, token_ids):
    """The same through the loader and the paged runner: two chunks, then single tokens."""
    model = open_model(str(folder))
    runner = TorchRunner(model.config, model.weights, num_blocks=24, block_size=BLOCK_SIZE)
    blocks = [5, 1, 9, 0, 3, 7, *range(10, 24)][: 6 * len(model.config.kv_groups)]
    sequence = sequence_of(token_ids, blocks=blocks, block_size=BLOCK_SIZE)
    for num_new in (20, len(token_ids) - 24, 1, 1, 1, 1):
        logits = runner._model.forward(runner._pack(StepPlan(0, [sequence], [num_new])))
        sequence.num_computed_tokens += num_new
    return logits[0].double()


def tokens(num=41):
    generator = torch.Generator().manual_seed(num)
    return torch.randint(0, 259, (num,), generator=generator).tolist()


SHAPES = {
    "mha": {"num_attention_heads": 4, "num_key_value_heads": 4},
    "gqa": {"num_attention_heads": 6, "num_key_value_heads": 2},
    "mqa": {"num_attention_heads": 4, "num_key_value_heads": 1},
    "head_dim of its own": {"head_dim": 16},
    "tied": {"tie_word_embeddings": True},
}


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_folder_gives_the_plain_models_logits(tmp_path, shape, num_shards):
    config = toy_config(**SHAPES[shape])
    tensors = toy_tensors(config)
    folder = write_folder(tmp_path, config, tensors, num_shards=num_shards)

    logits = served_logits(folder, tokens())

    assert (logits - plain_logits(config, tensors, tokens())).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_widened_exactly(tmp_path, dtype):
    tensors = toy_tensors(toy_config(), dtype=dtype)
    folder = write_folder(tmp_path, toy_config(), tensors)

    logits = served_logits(folder, tokens())

    assert (logits - plain_logits(toy_config(), tensors, tokens())).abs().max() < 1e-4


def test_qwen2s_biases_are_added_and_reordered_with_their_rows(tmp_path):
    config = toy_config(architectures=["Qwen2ForCausalLM"])
    tensors = toy_tensors(config, bias=True)
    folder = write_folder(tmp_path, config, tensors)

    logits = served_logits(folder, tokens())

    assert (logits - plain_logits(config, tensors, tokens())).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "window_of"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 9}, lambda layer: 9),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, lambda layer: None),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "sliding_window": 9,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            lambda layer: None if layer < 1 else 9,
        ),
        (
            {
                "architectures": ["Qwen2ForCausalLM"],
                "sliding_window": 9,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            lambda layer: 9 if layer == 0 else None,
        ),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9}, lambda layer: None),
    ],
    ids=["mistral", "mistral without", "qwen2 by depth", "qwen2 by name", "qwen2 switched off"],
)
def test_windows_are_read_as_each_architecture_states_them(tmp_path, changes, window_of):
    config = toy_config(**changes)
    tensors = toy_tensors(config)
    folder = write_folder(tmp_path, config, tensors)

    logits = served_logits(folder, tokens())

    expected = plain_logits(config, tensors, tokens(), window_of=window_of)
    assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "scaling"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, LinearScaling(4.0)),
        ({"rope_scaling": LLAMA3}, Llama3Scaling(8.0, 1.0, 4.0, 64)),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 500.0}}, Llama3Scaling(8.0, 1.0, 4.0, 64)),
        ({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}, None),
    ],
    ids=["linear", "llama3", "llama3 under the newer name", "default"],
)
def test_scaled_rotary_embeddings_turn_as_the_config_says(tmp_path, changes, scaling):
    config = toy_config(**changes)
    tensors = toy_tensors(config)
    folder = write_folder(tmp_path, config, tensors)

    logits = served_logits(folder, tokens())

    base = 500.0 if "rope_parameters" in changes else 10_000.0
    frequencies = base ** (-torch.arange(0, 12, 2, dtype=torch.float64) / 12)
    if scaling is not None:
        frequencies = scaling.scale(frequencies)
    expected = plain_logits(config, tensors, tokens(), frequencies=frequencies)
    assert (logits - expected).abs().max() < 1e-4


def test_the_sizes_read_are_those_of_the_file(tmp_path):
    config = toy_config(head_dim=16, rope_scaling=LLAMA3)
    folder = write_folder(tmp_path / "my-model", config, toy_tensors(config))

    sizes = read_config(folder)

    assert (sizes.name, sizes.num_layers, sizes.hidden_size) == ("my-model", 2, 48)
    assert (sizes.num_heads, sizes.num_kv_heads, sizes.head_dim) == (4, 2, 16)
    assert (sizes.vocab_size, sizes.max_context, sizes.rope_base) == (320, 512, 10_000.0)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [(None, (257,)), ({"eos_token_id": [257, 3]}, (257, 3)), ({"eos_token_id": 9}, (9,))],
)
def test_generation_config_names_the_end_tokens_before_config(tmp_path, generation, expected):
    folder = write_folder(tmp_path, toy_config(), toy_tensors(toy_config()))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))

    assert read_end_tokens(folder) == expected
    assert open_model(str(folder)).eos_token_ids == expected


def test_computing_in_bf16_stays_near_fp32(tmp_path):
    folder = write_folder(tmp_path, toy_config(), toy_tensors(toy_config()))
    model = open_model(str(folder), dtype=torch.bfloat16)
    runner = TorchRunner(model.config, model.weights, num_blocks=12, block_size=BLOCK_SIZE)
    sequence = sequence_of(tokens(), blocks=range(6), block_size=BLOCK_SIZE)

    for num_new in (20, 20, 1):
        logits = runner._model.forward(runner._pack(StepPlan(0, [sequence], [num_new])))
        sequence.num_computed_tokens += num_new

    exact = served_logits(folder, tokens())
    assert runner.describe().kv_format == "bf16"
    assert (logits[0].double() - exact).abs().max() < 0.1 * exact.abs().max()


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_as_a_folder_answers_as_the_gguf_does(tmp_path):
    config, weights = smollm2()
    folder = smollm2_as_folder(smollm2_path(), tmp_path, config)
    text = "The capital of France is"
    prompts = seeded_prompts(smollm2_tokenizer().encode, count=2, num_words=(8, 24))

    model = open_model(str(folder))

    assert torch.equal(model.weights.layers[29].query_key_value, weights.layers[29].query_key_value)
    assert model.text.encode(text) == smollm2_tokenizer().encode(text)
    workload = Workload([model.text.encode(text), *prompts], num_outputs=6)
    runners = [
        TorchRunner(*sizes, num_blocks=64, block_size=16)
        for sizes in ((config, weights), (model.config, model.weights))
    ]
    from_gguf, from_folder = (run_engine(runner, workload).token_ids for runner in runners)
    assert from_folder == from_gguf
    assert model.text.decode(from_folder[0][:2]) == " Paris."


@pytest.mark.parametrize("name", ["random", "random-mla"])
def test_built_in_models_compute_in_the_type_asked_for(name):
    model = open_model(name, dtype=torch.bfloat16)
    runner = TorchRunner(model.config, model.weights, num_blocks=12, block_size=BLOCK_SIZE)
    sequence = sequence_of(tokens(), blocks=range(6), block_size=BLOCK_SIZE)

    for num_new in (20, 20, 1):
        logits = runner._model.forward(runner._pack(StepPlan(0, [sequence], [num_new])))
        sequence.num_computed_tokens += num_new

    exact = served_logits(name, tokens())
    assert runner.describe().kv_format == "bf16"
    assert runner.kv.num_bytes == model.bytes_per_token() * 12 * BLOCK_SIZE
    assert (logits[0].double() - exact).abs().max() < 0.1 * exact.abs().max()
