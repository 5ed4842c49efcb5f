"""A small model with latent attention and seeded random weights, for tests and `random-mla`.

It says nothing sensible; what it shows is the latent cache at work in the engine.
"""

from typing import Final

import torch
from torch import Tensor

from engine.model.mla import MlaConfig, MlaLayer, MlaWeights, QueryCompression
from engine.model.mla_attention import LatentHeads
from engine.model.random_model import VOCAB_SIZE

RANDOM_MLA_CONFIG: Final = MlaConfig(
    name="random-mla-2x64",
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_heads=4,
    query_rank=48,
    latent_rank=32,
    nope_dim=16,
    rope_dim=8,
    value_dim=16,
    vocab_size=VOCAB_SIZE,
    max_context=2048,
    rope_base=10_000.0,
    norm_epsilon=1e-6,
)


def random_mla_weights(seed: int, config: MlaConfig = RANDOM_MLA_CONFIG) -> MlaWeights:
    """Draw a model's weights; the same seed gives the same model."""
    generator = torch.Generator().manual_seed(seed)
    embedding = torch.randn(config.vocab_size, config.hidden_size, generator=generator)
    layers = [_random_layer(config, generator) for _ in range(config.num_layers)]
    output = torch.randn(config.vocab_size, config.hidden_size, generator=generator)
    return MlaWeights(embedding, layers, torch.ones(config.hidden_size), output)


def _random_layer(config: MlaConfig, generator: torch.Generator) -> MlaLayer:
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_heads

    def drawn(*shape: int, fan_in: int) -> Tensor:
        return torch.randn(*shape, generator=generator).div_(float(fan_in) ** 0.5)

    def matrix(rows: int, columns: int) -> Tensor:
        return drawn(rows, columns, fan_in=rows)

    rank = config.query_rank
    compression = None
    if rank is not None:
        compression = QueryCompression(down=matrix(hidden, rank), norm=torch.ones(rank))
    return MlaLayer(
        attention_norm=torch.ones(hidden),
        query_compression=compression,
        query=matrix(rank or hidden, heads * config.query_dim),
        latent=matrix(hidden, config.latent_rank + config.rope_dim),
        latent_norm=torch.ones(config.latent_rank),
        heads=LatentHeads(
            key=drawn(heads, config.nope_dim, config.latent_rank, fan_in=config.latent_rank),
            value=drawn(heads, config.latent_rank, config.value_dim, fan_in=config.latent_rank),
        ),
        attention_output=matrix(heads * config.value_dim, hidden),
        mlp_norm=torch.ones(hidden),
        gate_up=matrix(hidden, 2 * inner),
        down=matrix(inner, hidden),
    )
