"""The random model written out plainly, to hold the paged one against."""

import torch
from torch.nn import functional

from tests.engine.factories_model import random_model


def plain_logits(token_ids, *, window=None):
    """Return the random model's logits over one whole sequence, in fp64, [length, vocab_size].

    Neither cache nor blocks nor fusion: everything is computed anew. With a window, position p
    attends to positions above p - window.
    """
    config, weights = random_model()
    hidden = weights.embedding.double()[token_ids]
    num, half = len(token_ids), config.head_dim // 2
    frequencies = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(num, dtype=torch.float64)[:, None, None] * frequencies

    ahead = torch.arange(num)[:, None] - torch.arange(num)
    mask = (ahead >= 0) & (ahead < (window or num))

    def norm(rows, weight):
        mean = rows.square().mean(-1, keepdim=True)
        return rows / (mean + config.norm_epsilon).sqrt() * weight.double()

    def rotate(heads):
        even, odd = heads[..., 0::2], heads[..., 1::2]
        turned = torch.empty_like(heads)
        turned[..., 0::2] = even * angles.cos() - odd * angles.sin()
        turned[..., 1::2] = even * angles.sin() + odd * angles.cos()
        return turned

    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    for layer in weights.layers:
        rows = norm(hidden, layer.attention_norm) @ layer.query_key_value.double()
        query, key, value = (
            part.reshape(num, -1, config.head_dim)
            for part in rows.split((queries, keys, keys), dim=1)
        )
        attended = functional.scaled_dot_product_attention(
            rotate(query).transpose(0, 1),
            rotate(key).transpose(0, 1),
            value.transpose(0, 1),
            attn_mask=mask,
            enable_gqa=True,
        )
        hidden = (
            hidden + attended.transpose(0, 1).reshape(num, -1) @ layer.attention_output.double()
        )
        gate, up = (norm(hidden, layer.mlp_norm) @ layer.gate_up.double()).chunk(2, dim=1)
        hidden = hidden + (gate * gate.sigmoid() * up) @ layer.down.double()
    return norm(hidden, weights.norm) @ weights.output.double().T
