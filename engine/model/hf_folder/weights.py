"""Build a Llama-family model's weights from a folder's tensors."""

import torch
from torch import Tensor

from engine.model.hf_folder.json_files import ModelFolderError
from engine.model.hf_folder.tensors import FolderTensors, cast, halves_to_pairs
from engine.model.llama import LlamaConfig, LlamaLayer, LlamaWeights


def read_weights(
    tensors: FolderTensors,
    config: LlamaConfig,
    *,
    tied: bool,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> LlamaWeights:
    """Read all weights, as `dtype` on `device`.

    Args:
        tied: Whether the output matrix is the embedding.

    Raises:
        ModelFolderError: A tensor is missing or has another shape than the configuration says.
    """
    reader = _WeightReader(tensors, config, dtype, torch.device(device))
    size = (config.vocab_size, config.hidden_size)
    embedding = reader.tensor("model.embed_tokens.weight", *size)
    layers = [reader.layer(index) for index in range(config.num_layers)]
    return LlamaWeights(
        embedding=embedding,
        layers=layers,
        norm=reader.tensor("model.norm.weight", config.hidden_size),
        output=embedding if tied else reader.tensor("lm_head.weight", *size),
    )


class _WeightReader:
    """Reads tensors, holding each against the shape that the configuration demands."""

    def __init__(
        self,
        tensors: FolderTensors,
        config: LlamaConfig,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._tensors, self._config, self._dtype, self._device = tensors, config, dtype, device

    def layer(self, index: int) -> LlamaLayer:
        """Read one layer, its projections fused."""
        config, prefix = self._config, f"model.layers.{index}"
        hidden, inner = config.hidden_size, config.intermediate_size
        queries = config.num_heads * config.head_dim
        self._refuse(f"{prefix}.self_attn.o_proj.bias")
        self._refuse(f"{prefix}.self_attn.q_norm.weight")
        return LlamaLayer(
            attention_norm=self.tensor(f"{prefix}.input_layernorm.weight", hidden),
            query_key_value=_transposed(torch.cat(self._query_key_value(prefix, "weight", hidden))),
            attention_output=_transposed(
                self.tensor(f"{prefix}.self_attn.o_proj.weight", hidden, queries)
            ),
            mlp_norm=self.tensor(f"{prefix}.post_attention_layernorm.weight", hidden),
            gate_up=_transposed(
                torch.cat(
                    [
                        self.tensor(f"{prefix}.mlp.gate_proj.weight", inner, hidden),
                        self.tensor(f"{prefix}.mlp.up_proj.weight", inner, hidden),
                    ]
                )
            ),
            down=_transposed(self.tensor(f"{prefix}.mlp.down_proj.weight", hidden, inner)),
            query_key_value_bias=self._bias(prefix),
        )

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Read one tensor."""
        return cast(self._tensors.read(name, shape), self._dtype, self._device)

    def _query_key_value(self, prefix: str, kind: str, *columns: int) -> list[Tensor]:
        config = self._config
        queries = config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        query = self.tensor(f"{prefix}.self_attn.q_proj.{kind}", queries, *columns)
        key = self.tensor(f"{prefix}.self_attn.k_proj.{kind}", keys, *columns)
        value = self.tensor(f"{prefix}.self_attn.v_proj.{kind}", keys, *columns)
        return [
            halves_to_pairs(query, config.head_dim),
            halves_to_pairs(key, config.head_dim),
            value,
        ]

    def _bias(self, prefix: str) -> Tensor | None:
        if f"{prefix}.self_attn.q_proj.bias" not in self._tensors:
            return None
        return torch.cat(self._query_key_value(prefix, "bias"))

    def _refuse(self, name: str) -> None:
        """Refuse a tensor that would silently be left out."""
        if name in self._tensors:
            raise ModelFolderError(self._tensors.folder, f"has {name}, which is not built here")


def _transposed(matrix: Tensor) -> Tensor:
    """Turn [out, in] into a contiguous [in, out]."""
    return matrix.t().contiguous()
