"""Build a Llama-family model's configuration and weights from a GGUF file."""

import torch
from torch import Tensor

from engine.model.gguf_file import GgufError, GgufFile
from engine.model.llama import LlamaConfig, LlamaLayer, LlamaWeights
from engine.model.rotary import FactorScaling, LinearScaling, RopeScaling

ROPE_FACTORS = "rope_freqs.weight"
LARGEST_COUNT = 1 << 20  # a larger context, or anything else, would only be a lie


def read_config(file: GgufFile) -> LlamaConfig:
    """Read the model's sizes.

    Raises:
        GgufError: Not a Llama-family model, or one with a feature that is not built here.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise GgufError(file.path, f"holds a {architecture!r} model; only 'llama' is built here")
    hidden_size = _count(file, "embedding_length")
    num_heads = _count(file, "attention.head_count")
    head_dim = _count(file, "rope.dimension_count", hidden_size // num_heads)
    windowed = "llama.attention.sliding_window" in file.metadata
    config = LlamaConfig(
        name=file.path.stem,
        num_layers=_count(file, "block_count"),
        hidden_size=hidden_size,
        intermediate_size=_count(file, "feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=_count(file, "attention.head_count_kv"),
        head_dim=head_dim,
        vocab_size=_vocabulary(file),
        max_context=_count(file, "context_length"),
        rope_base=_real(file, "rope.freq_base", 10_000.0),
        norm_epsilon=_real(file, "attention.layer_norm_rms_epsilon"),
        sliding_window=_count(file, "attention.sliding_window") if windowed else None,
        rope_scaling=_rope_scaling(file, head_dim),
    )
    if config.head_dim * num_heads != hidden_size or num_heads % config.num_kv_heads:
        raise GgufError(
            file.path,
            f"has {num_heads} heads of {config.head_dim} and {config.num_kv_heads} key heads, "
            f"which do not fit its hidden size of {hidden_size}",
        )
    return config


def _rope_scaling(file: GgufFile, head_dim: int) -> RopeScaling | None:
    """Return what changes the frequencies: a factor for all, or (Llama 3.1) one for each."""
    kind = file.metadata.get("llama.rope.scaling.type", "none")
    if kind == "linear":
        return LinearScaling(_real(file, "rope.scaling.factor"))
    if kind != "none":
        raise GgufError(file.path, f"scales its rotary embedding by {kind!r}: not built here")
    if ROPE_FACTORS not in file.tensors:
        return None
    factors = file.tensor(ROPE_FACTORS).tolist()
    if len(factors) != head_dim // 2 or not all(0 < factor < 1e9 for factor in factors):
        raise GgufError(
            file.path, f"should have {head_dim // 2} positive rotary factors, but has {factors}"
        )
    return FactorScaling(tuple(factors))


def _vocabulary(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise GgufError(file.path, "has no token embedding")
    return embedding.shape[0]


def _count(file: GgufFile, key: str, default: int | None = None) -> int:
    value = file.metadata.get(f"llama.{key}", default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_COUNT:
        raise GgufError(
            file.path, f"has llama.{key} = {value!r}, not a whole number from 1 to {LARGEST_COUNT}"
        )
    return value


def _real(file: GgufFile, key: str, default: float | None = None) -> float:
    value = file.metadata.get(f"llama.{key}", default)
    if not isinstance(value, (int, float)) or not value > 0:
        raise GgufError(file.path, f"has llama.{key} = {value!r}, not a positive number")
    return float(value)


def read_weights(
    file: GgufFile,
    config: LlamaConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> LlamaWeights:
    """Read and unpack all weights.

    Raises:
        GgufError: A tensor is missing or has another shape than the configuration says.
    """
    reader = _WeightReader(file, config, dtype, torch.device(device))
    embedding = reader.matrix("token_embd.weight", config.vocab_size, config.hidden_size)
    tied = "output.weight" not in file.tensors
    return LlamaWeights(
        embedding=embedding,
        layers=[reader.layer(index) for index in range(config.num_layers)],
        norm=reader.vector("output_norm.weight"),
        output=embedding
        if tied
        else reader.matrix("output.weight", config.vocab_size, config.hidden_size),
    )


class _WeightReader:
    """Reads tensors, holding each against the shape that the configuration demands."""

    def __init__(
        self, file: GgufFile, config: LlamaConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._file, self._config, self._dtype, self._device = file, config, dtype, device

    def layer(self, index: int) -> LlamaLayer:
        """Read one layer, its projections fused."""
        config, prefix = self._config, f"blk.{index}"
        hidden, inner = config.hidden_size, config.intermediate_size
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        return LlamaLayer(
            attention_norm=self.vector(f"{prefix}.attn_norm.weight"),
            query_key_value=self._fused(
                self.matrix(f"{prefix}.attn_q.weight", queries, hidden),
                self.matrix(f"{prefix}.attn_k.weight", keys, hidden),
                self.matrix(f"{prefix}.attn_v.weight", keys, hidden),
            ),
            attention_output=self._fused(
                self.matrix(f"{prefix}.attn_output.weight", hidden, queries)
            ),
            mlp_norm=self.vector(f"{prefix}.ffn_norm.weight"),
            gate_up=self._fused(
                self.matrix(f"{prefix}.ffn_gate.weight", inner, hidden),
                self.matrix(f"{prefix}.ffn_up.weight", inner, hidden),
            ),
            down=self._fused(self.matrix(f"{prefix}.ffn_down.weight", hidden, inner)),
        )

    def vector(self, name: str) -> Tensor:
        """Read a norm's weight, [hidden_size]."""
        return self._read(name, (self._config.hidden_size,))

    def matrix(self, name: str, rows: int, columns: int) -> Tensor:
        """Read a matrix, [rows, columns]."""
        return self._read(name, (rows, columns))

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        info = self._file.tensors.get(name)
        if info is None or info.shape != shape:
            there = "no such tensor" if info is None else f"it has {info.shape}"
            raise GgufError(self._file.path, f"should have {name} of shape {shape}, but {there}")
        return torch.from_numpy(self._file.tensor(name)).to(self._device, self._dtype)

    @staticmethod
    def _fused(*matrices: Tensor) -> Tensor:
        """Stack [out, in] matrices and turn them into one contiguous [in, out]."""
        return torch.cat(matrices).t().contiguous()
