"""Model folders that are damaged, hostile or of a kind not built here: refused, in plain words."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from engine.model.hf_folder.json_files import ModelFolderError, read_json
from engine.model.model_files import ModelNotFoundError
from engine.model.open_model import open_model
from tests.engine.factories_hf import toy_config, toy_tensors, write_folder

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    """A sound model folder of two shards, to be spoilt."""
    return write_folder(tmp_path, toy_config(), toy_tensors(toy_config()), num_shards=2)


def refusal(folder):
    with pytest.raises(ModelFolderError) as refused:
        open_model(str(folder))
    return str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM"),
        ({"architectures": None, "model_type": "gemma2"}, "gemma2"),
        ({"architectures": [["LlamaForCausalLM"]]}, "architecture"),
        ({"architectures": {"a": 1}}, "architecture"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True"),
        ({"hidden_size": "48"}, "hidden_size = '48'"),
        ({"hidden_size": -48}, "hidden_size = -48"),
        ({"hidden_size": 50}, "4 heads do not divide hidden_size 50"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"max_position_embeddings": 10**9}, "max_position_embeddings"),
        ({"num_key_value_heads": 3}, "shares 3 key heads among 4"),
        ({"num_key_value_heads": 8}, "num_key_value_heads = 8"),
        ({"head_dim": 15}, "head_dim = 15"),
        ({"rms_norm_eps": 0}, "rms_norm_eps = 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "'yarn'"),
        ({"rope_scaling": {"type": ["linear"]}}, "linear"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_scaling": {"type": "linear"}}, "factor"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                    "original_max_position_embeddings": 64,
                }
            },
            "low_freq_factor",
        ),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes'"),
        ({"eos_token_id": "</s>"}, "eos_token_id = '</s>'"),
        ({"eos_token_id": [1, None]}, "eos_token_id"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 0}, "sliding_window = 0"),
        (
            {
                "architectures": ["MistralForCausalLM"],
                "sliding_window": 8,
                "layer_types": ["sliding_attention", {}],
            },
            "layer_types",
        ),
        # The configuration is sound, but not of these tensors.
        ({"hidden_size": 96}, "model.embed_tokens.weight of shape (320, 96); it has (320, 48)"),
        ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight"),
        ({"num_key_value_heads": 4}, "k_proj.weight of shape (48, 48); it has (24, 48)"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_by_name(folder, changes, words):
    (folder / "config.json").write_text(json.dumps(toy_config(**changes)))

    assert words in refusal(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", INDEX])
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_damaged_json_is_refused_with_the_files_name(folder, name, data):
    (folder / name).write_bytes(data)

    assert name in refusal(folder)


def test_json_larger_than_the_limit_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"a": "x" * 2000}))

    with pytest.raises(ModelFolderError, match="larger than the 1000 bytes"):
        read_json(path, max_bytes=1000)


@pytest.mark.parametrize(
    "file",
    [
        "../model-00001-of-00002.safetensors",
        "/etc/passwd",
        "sub/model.safetensors",
        "..\\model.safetensors",
        "model.bin",
        ".safetensors",
        "model.safetensors\n",
        "",
        7,
        None,
    ],
)
def test_an_index_that_points_outside_its_folder_is_refused(folder, file):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = file
    (folder / INDEX).write_text(json.dumps(index))

    assert "which is no safetensors file beside it" in refusal(folder)


def test_an_index_that_names_a_missing_file_or_tensor_is_refused(folder):
    index = json.loads((folder / INDEX).read_text())
    shards = sorted(set(index["weight_map"].values()))
    others = {shards[0]: shards[1], shards[1]: shards[0]}
    moved = index["weight_map"] | {
        "model.norm.weight": others[index["weight_map"]["model.norm.weight"]]
    }

    (folder / INDEX).write_text(json.dumps({"weight_map": moved}))
    assert "holds model.norm.weight, but it does not" in refusal(folder)

    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "model-9.safetensors"}}))
    assert "model-9.safetensors: cannot be read" in refusal(folder)

    (folder / INDEX).write_text(json.dumps({"weight_map": {}}))
    assert "has no weight_map" in refusal(folder)


def header(entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08",
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 4) + b"abcd",
        header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}),
        header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}) + bytes(16),
        header({"a": {"dtype": "F32", "shape": [1 << 62, 8], "data_offsets": [0, 0]}}),
        header({"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}) + bytes(16),
    ],
)
def test_a_damaged_safetensors_file_is_refused(tmp_path, data):
    folder = write_folder(tmp_path, toy_config(), toy_tensors(toy_config()))
    (folder / "model.safetensors").write_bytes(data)

    assert "model.safetensors: cannot be read as safetensors" in refusal(folder)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    folder = write_folder(tmp_path, toy_config(), toy_tensors(toy_config()))
    path = folder / "model.safetensors"
    whole = path.read_bytes()

    for size in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:size])
        assert "model.safetensors" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("model.norm.weight", torch.ones(48, dtype=torch.int8), "keeps model.norm.weight as I8"),
        ("model.norm.weight", torch.ones(48, dtype=torch.float64), "as F64"),
        ("model.norm.weight", torch.ones(1, 48), "of shape (48,); it has (1, 48)"),
        ("model.layers.1.self_attn.o_proj.bias", torch.ones(48), "o_proj.bias, which is not built"),
        ("model.layers.0.self_attn.q_norm.weight", torch.ones(12), "q_norm.weight"),
        ("model.layers.0.self_attn.q_proj.bias", torch.ones(48), "k_proj.bias"),
    ],
)
def test_tensors_of_another_type_or_model_are_refused(tmp_path, name, tensor, words):
    folder = write_folder(tmp_path, toy_config(), toy_tensors(toy_config()) | {name: tensor})

    assert words in refusal(folder)


def test_an_untied_model_without_an_output_matrix_is_refused(tmp_path):
    tensors = toy_tensors(toy_config())
    del tensors["lm_head.weight"]
    folder = write_folder(tmp_path, toy_config(), tensors)

    assert "lm_head.weight" in refusal(folder)


def test_a_folder_without_weights_or_tokenizer_is_refused(folder, tmp_path):
    (folder / INDEX).unlink()
    assert "model.safetensors: cannot be read" in refusal(folder)

    (folder / "tokenizer.json").unlink()
    assert "tokenizer.json: cannot be read" in refusal(folder)


def test_a_path_that_is_no_model_is_not_found(tmp_path):
    (tmp_path / "empty").mkdir()

    for path in (tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(ModelNotFoundError, match="safetensors"):
            open_model(str(path))


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tmp_path):
    config = toy_config(vocab_size=258)
    folder = write_folder(tmp_path, config, toy_tensors(config))

    assert "has token id 258; the model has 258 ids" in refusal(folder)


def test_an_empty_safetensors_file_lacks_the_first_tensor(tmp_path):
    folder = write_folder(tmp_path, toy_config(), toy_tensors(toy_config()))
    save_file({}, folder / "model.safetensors")

    assert "should have model.embed_tokens.weight of shape (320, 48), but has not" in refusal(
        folder
    )
