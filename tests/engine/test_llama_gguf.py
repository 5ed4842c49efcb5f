"""What a GGUF file says of its model's sizes, windows and rotary embedding."""

import struct

import pytest
import torch

from engine.model.gguf_file import GgufError, GgufFile
from engine.model.llama_gguf import read_config
from engine.model.rotary import FactorScaling, LinearScaling, Llama3Scaling
from tests.engine.factories_gguf import FLOAT32, STRING, UINT32, gguf_bytes

F32 = 0
SIZES = {
    "general.architecture": (STRING, "llama"),
    "llama.block_count": (UINT32, 2),
    "llama.embedding_length": (UINT32, 32),
    "llama.feed_forward_length": (UINT32, 64),
    "llama.attention.head_count": (UINT32, 4),
    "llama.attention.head_count_kv": (UINT32, 2),
    "llama.context_length": (UINT32, 512),
    "llama.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-5),
}


def config_of(tmp_path, changes=None, *, factors=None):
    metadata = SIZES | (changes or {})
    tensors = [("token_embd.weight", (32, 10), F32, bytes(32 * 10 * 4))]
    if factors is not None:
        packed = struct.pack(f"<{len(factors)}f", *factors)
        tensors.append(("rope_freqs.weight", (len(factors),), F32, packed))
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes([(key, *value) for key, value in metadata.items()], tensors))
    with GgufFile(path) as file:
        return read_config(file)


def test_a_plain_model_attends_to_everything_and_scales_nothing(tmp_path):
    config = config_of(tmp_path)

    assert (config.num_kv_heads, config.head_dim, config.vocab_size) == (2, 8, 10)
    assert (config.sliding_window, config.rope_scaling) == (None, None)


def test_a_window_and_a_linear_scaling_are_read(tmp_path):
    config = config_of(
        tmp_path,
        {
            "llama.attention.sliding_window": (UINT32, 128),
            "llama.rope.scaling.type": (STRING, "linear"),
            "llama.rope.scaling.factor": (FLOAT32, 4.0),
        },
    )

    assert config.windows.of_all_layers == 128
    assert config.rope_scaling == LinearScaling(4.0)


def test_llama_3_1s_factors_turn_as_the_formula_they_were_made_by(tmp_path):
    formula = Llama3Scaling(8.0, 1.0, 4.0, 64)
    frequencies = 10_000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    factors = (frequencies / formula.scale(frequencies)).tolist()

    scaling = config_of(tmp_path, factors=factors).rope_scaling

    assert isinstance(scaling, FactorScaling)
    assert torch.allclose(scaling.scale(frequencies), formula.scale(frequencies), rtol=1e-6)


@pytest.mark.parametrize(
    "factors", [[1.0] * 3, [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, float("nan")]]
)
def test_factors_that_cannot_be_are_refused(tmp_path, factors):
    with pytest.raises(GgufError, match="should have 4 positive rotary factors"):
        config_of(tmp_path, factors=factors)


def test_a_scaling_that_is_not_built_is_refused(tmp_path):
    with pytest.raises(GgufError, match="'yarn': not built here"):
        config_of(tmp_path, {"llama.rope.scaling.type": (STRING, "yarn")})


@pytest.mark.parametrize("key", ["context_length", "block_count", "attention.head_count_kv"])
@pytest.mark.parametrize("number", [0, 2**32 - 1])
def test_sizes_beyond_belief_are_refused(tmp_path, key, number):
    with pytest.raises(GgufError, match=f"has llama.{key} = {number}"):
        config_of(tmp_path, {f"llama.{key}": (UINT32, number)})
