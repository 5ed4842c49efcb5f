"""A tiny Llama-family model with seeded random weights, and a tokenizer of single bytes for it.

It says nothing sensible, but runs the same code as a real one, needs no file and starts at once:
for tests, and for `serve --model random`.
"""

from typing import Final

import torch
from torch import Tensor

from engine.model.chat_template import TemplateMessage, render_chat
from engine.model.llama import LlamaConfig, LlamaLayer, LlamaWeights
from engine.model.text_stream import TextStream

END_OF_TURN: Final = 256
START_OF_TURN: Final = 257
VOCAB_SIZE: Final = 512

RANDOM_CONFIG: Final = LlamaConfig(
    name="random-llama-2x64",
    num_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=VOCAB_SIZE,
    max_context=2048,
    rope_base=10_000.0,
    norm_epsilon=1e-5,
)


def random_weights(seed: int, config: LlamaConfig = RANDOM_CONFIG) -> LlamaWeights:
    """Draw a model's weights; the same seed gives the same model."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size

    def matrix(rows: int, columns: int) -> Tensor:
        drawn = torch.randn(rows, columns, generator=generator)
        return drawn.div_(float(rows) ** 0.5)

    embedding = torch.randn(config.vocab_size, hidden, generator=generator)
    layers = [
        LlamaLayer(
            attention_norm=torch.ones(hidden),
            query_key_value=matrix(hidden, queries + 2 * keys),
            attention_output=matrix(queries, hidden),
            mlp_norm=torch.ones(hidden),
            gate_up=matrix(hidden, 2 * inner),
            down=matrix(inner, hidden),
        )
        for _ in range(config.num_layers)
    ]
    # Not tied: a tied random model only ever repeats its last token.
    output = torch.randn(config.vocab_size, hidden, generator=generator)
    return LlamaWeights(embedding, layers, torch.ones(hidden), output)


class ByteTokenizer:
    """One token per UTF-8 byte, and two that mark the turns of a chat."""

    vocab_size: Final = VOCAB_SIZE
    eos_token_ids: Final = (END_OF_TURN,)

    def encode(self, text: str) -> list[int]:
        """Return the text's bytes."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, token_ids: list[int]) -> str:
        """Return the text that the bytes spell; what is not UTF-8 becomes U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return a token's byte: printable ASCII for ids beyond 255, nothing for a mark."""
        if token_id in (END_OF_TURN, START_OF_TURN):
            return b""
        return bytes([token_id if token_id < 256 else 32 + token_id % 95])

    def apply_chat_template(self, messages: list[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation, up to where the assistant begins to speak."""
        token_ids: list[int] = []
        marks = {"<|im_start|>": START_OF_TURN, "<|im_end|>": END_OF_TURN}
        for part in render_chat(messages):
            token_ids += [marks[part.text]] if part.is_mark else self.encode(part.text)
        return token_ids

    def text_stream(self) -> TextStream:
        """Return a fresh reader of generated tokens."""
        return TextStream(self.token_bytes)
