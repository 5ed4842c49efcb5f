"""Write model folders of Hugging Face's layout: small random ones, and SmolLM2 from its GGUF."""

import json

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.model.gguf_file import GgufFile
from engine.model.tokenizer import byte_spelling

TOY_SIZES = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "eos_token_id": 257,
    "tie_word_embeddings": False,
}
SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>"]


def pairs_to_halves(rows, head_dim):
    """Reorder a projection's rows from neighbouring pairs to Hugging Face's two halves."""
    pairs = rows.view(-1, head_dim // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape).contiguous()


def toy_config(**changes):
    return TOY_SIZES | changes


def toy_tensors(config, *, seed=1, dtype=torch.float32, bias=False):
    """Random tensors under Hugging Face's names, shaped as the configuration says."""
    generator = torch.Generator().manual_seed(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim

    def drawn(*shape):
        return torch.randn(*shape, generator=generator).div_(shape[-1] ** 0.5).to(dtype)

    tensors = {
        "model.embed_tokens.weight": drawn(config["vocab_size"], hidden) * hidden**0.5,
        "model.norm.weight": 1 + drawn(hidden),
    }
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = drawn(config["vocab_size"], hidden) * 4
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}"
        shapes = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for name, shape in shapes.items():
            tensors[f"{prefix}.{name}.weight"] = drawn(*shape)
            if bias and name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
                tensors[f"{prefix}.{name}.bias"] = drawn(shape[0])
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{name}.weight"] = 1 + drawn(hidden)
    return tensors


def toy_tokenizer():
    """A tokenizer of single bytes as GPT-2 spells them, and three special tokens."""
    vocabulary = {character: byte for byte, character in byte_spelling().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return tokenizer


def write_folder(folder, config, tensors, *, num_shards=1, tokenizer=None, settings=None):
    """Write a model folder and return it.

    Args:
        folder: Where to; made if absent.
        config: What config.json holds.
        tensors: Name -> tensor.
        num_shards: How many safetensors files, behind an index if more than one.
        tokenizer: The tokenizer; by default the toy one.
        settings: What tokenizer_config.json holds, if there is one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (tokenizer or toy_tokenizer()).save(str(folder / "tokenizer.json"))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if num_shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    weight_map = {}
    for shard in range(num_shards):
        name = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        names = sorted(tensors)[shard::num_shards]
        save_file({one: tensors[one] for one in names}, folder / name)
        weight_map |= dict.fromkeys(names, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def smollm2_as_folder(path, folder, config):
    """Write SmolLM2's weights, bit for bit those of the GGUF, as a folder of two fp32 shards."""
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    with GgufFile(path) as file:

        def read(name):
            return torch.from_numpy(file.tensor(name))

        tensors = {
            "model.embed_tokens.weight": read("token_embd.weight"),
            "model.norm.weight": read("output_norm.weight"),
        }
        for index in range(config.num_layers):
            for ours, theirs in names.items():
                rows = read(f"blk.{index}.{ours}.weight")
                if ours in ("attn_q", "attn_k"):
                    rows = pairs_to_halves(rows, config.head_dim)
                tensors[f"model.layers.{index}.{theirs}.weight"] = rows
        vocabulary = {
            text: index for index, text in enumerate(file.metadata["tokenizer.ggml.tokens"])
        }
        merges = [tuple(one.split(" ", 1)) for one in file.metadata["tokenizer.ggml.merges"]]
        special = [
            text
            for text, kind in zip(
                vocabulary, file.metadata["tokenizer.ggml.token_type"], strict=True
            )
            if kind == 3
        ]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    sizes = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rope_base,
        "rope_scaling": None,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
    }
    return write_folder(folder, sizes, tensors, num_shards=2, tokenizer=tokenizer)
