"""Read a model's sizes from its config.json; refuse what is not built here, by name."""

from pathlib import Path
from typing import Final

from engine.model.hf_folder.json_files import Settings, read_json
from engine.model.llama import LlamaConfig
from engine.model.rotary import LinearScaling, Llama3Scaling, RopeScaling

CONFIG_FILE: Final = "config.json"
MAX_CONFIG_BYTES: Final = 1 << 20
# Beyond any model of this family; what a damaged or hostile file claims stays harmless.
MAX_LAYERS: Final = 1024
MAX_WIDTH: Final = 1 << 20
MAX_VOCABULARY: Final = 1 << 22
MAX_POSITIONS: Final = 1 << 20
MAX_HEADS: Final = 4096
MAX_HEAD_DIM: Final = 1024

# How each architecture says which layers have a sliding window.
ARCHITECTURES: Final = {
    "LlamaForCausalLM": "none",
    "MistralForCausalLM": "all",
    "Qwen2ForCausalLM": "switched",
}
BY_MODEL_TYPE: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}
# Each would change the result silently: (entry, the values under which it changes nothing).
UNBUILT: Final = (
    ("hidden_act", ("silu", "swish", None)),
    ("mlp_bias", (False, None)),
    ("quantization_config", (None,)),
    ("partial_rotary_factor", (1, 1.0, None)),
    ("num_local_experts", (None, 0, 1)),
    ("pretraining_tp", (None, 0, 1)),
)


def read_config(folder: Path) -> LlamaConfig:
    """Read the sizes of the model in a folder.

    Raises:
        ModelFolderError: No such file, damaged, or a model that is not built here.
    """
    path = folder / CONFIG_FILE
    settings = Settings(path, read_json(path, max_bytes=MAX_CONFIG_BYTES))
    architecture = _architecture(settings)
    for key, harmless in UNBUILT:
        if settings.get(key) not in harmless:
            raise settings.error(f"has {key} = {settings.get(key)!r}, which is not built here")
    num_heads = settings.count("num_attention_heads", most=MAX_HEADS)
    num_layers = settings.count("num_hidden_layers", most=MAX_LAYERS)
    window, full_layers = _windows(settings, ARCHITECTURES[architecture], num_layers)
    config = LlamaConfig(
        name=folder.resolve().name,
        num_layers=num_layers,
        hidden_size=settings.count("hidden_size", most=MAX_WIDTH),
        intermediate_size=settings.count("intermediate_size", most=MAX_WIDTH),
        num_heads=num_heads,
        num_kv_heads=settings.count("num_key_value_heads", num_heads, most=num_heads),
        head_dim=_head_dim(settings, num_heads),
        vocab_size=settings.count("vocab_size", most=MAX_VOCABULARY),
        max_context=settings.count("max_position_embeddings", most=MAX_POSITIONS),
        rope_base=_rope_base(settings),
        norm_epsilon=settings.real("rms_norm_eps"),
        sliding_window=window,
        full_layers=full_layers,
        rope_scaling=_rope_scaling(settings),
    )
    if num_heads % config.num_kv_heads:
        raise settings.error(f"shares {config.num_kv_heads} key heads among {num_heads}")
    return config


def ties_embeddings(folder: Path) -> bool:
    """Return whether the output matrix is the embedding."""
    path = folder / CONFIG_FILE
    return Settings(path, read_json(path)).flag("tie_word_embeddings", False)


def _architecture(settings: Settings) -> str:
    named, model_type = settings.get("architectures"), settings.get("model_type")
    if named is None and isinstance(model_type, str):
        named = [BY_MODEL_TYPE.get(model_type, model_type)]
    if isinstance(named, list) and len(named) == 1 and str(named[0]) in ARCHITECTURES:
        return str(named[0])
    raise settings.error(
        f"describes a model of architecture {named!r}; built here are {', '.join(ARCHITECTURES)}"
    )


def _head_dim(settings: Settings, num_heads: int) -> int:
    hidden_size = settings.count("hidden_size", most=MAX_WIDTH)
    if settings.get("head_dim") is None and hidden_size % num_heads:
        raise settings.error(
            f"gives no head_dim, and {num_heads} heads do not divide hidden_size {hidden_size}"
        )
    head_dim = settings.count("head_dim", max(1, hidden_size // num_heads), most=MAX_HEAD_DIM)
    if head_dim % 2:
        raise settings.error(f"has head_dim = {head_dim}: a rotary embedding needs pairs")
    return head_dim


def _windows(settings: Settings, kind: str, num_layers: int) -> tuple[int | None, frozenset[int]]:
    """Return the window, and the layers that attend to all positions all the same."""
    switched_on = kind == "all" or (
        kind == "switched" and settings.flag("use_sliding_window", False)
    )
    if not switched_on or settings.get("sliding_window") is None:
        return None, frozenset()
    window = settings.count("sliding_window", most=MAX_POSITIONS)
    types = settings.get("layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        said = isinstance(types, list) and all(one in known for one in types)
        if not isinstance(types, list) or not said or len(types) != num_layers:
            names = " or ".join(known)
            raise settings.error(f"has layer_types that are not {num_layers} times {names}")
        full = [index for index, name in enumerate(types) if name == "full_attention"]
    else:
        num_full = settings.get("max_window_layers") if kind == "switched" else 0
        full = list(range(min(num_full, num_layers) if isinstance(num_full, int) else 0))
    if len(full) == num_layers:
        return None, frozenset()
    return window, frozenset(full)


def _rope_settings(settings: Settings) -> Settings | None:
    """Return what changes the frequencies, under its newer or its older name."""
    return settings.part("rope_parameters") or settings.part("rope_scaling")


def _rope_base(settings: Settings) -> float:
    newer = settings.part("rope_parameters")
    if newer is not None and newer.get("rope_theta") is not None:
        return newer.real("rope_theta")
    return settings.real("rope_theta", 10_000.0)


def _rope_scaling(settings: Settings) -> RopeScaling | None:
    rope = _rope_settings(settings)
    if rope is None:
        return None
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(rope.real("factor"))
    if kind == "llama3":
        scaling = Llama3Scaling(
            factor=rope.real("factor"),
            low_freq_factor=rope.real("low_freq_factor"),
            high_freq_factor=rope.real("high_freq_factor"),
            original_context=rope.count("original_max_position_embeddings", most=MAX_POSITIONS),
        )
        if scaling.low_freq_factor >= scaling.high_freq_factor:
            raise settings.error("has a low_freq_factor that is not below its high_freq_factor")
        return scaling
    raise settings.error(
        f"scales its rotary embedding by {kind!r}; built here are 'linear' and 'llama3'"
    )


def read_end_tokens(folder: Path) -> tuple[int, ...]:
    """Return the ids that end a sequence, from generation_config.json or else config.json.

    Raises:
        ModelFolderError: A file that is there cannot be read, or names no token ids.
    """
    for name in ("generation_config.json", CONFIG_FILE):
        path = folder / name
        if not path.is_file():
            continue
        settings = Settings(path, read_json(path, max_bytes=MAX_CONFIG_BYTES))
        named = settings.get("eos_token_id")
        if named is None:
            continue
        ids = named if isinstance(named, list) else [named]
        if not all(type(one) is int and 0 <= one < MAX_VOCABULARY for one in ids):
            raise settings.error(f"has eos_token_id = {named!r}, not one token id or several")
        return tuple(ids)
    return ()
