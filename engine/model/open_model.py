"""Open any model by its name: built in, a GGUF file, or a folder of Hugging Face's layout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch

from engine.model.chat_template import TemplateMessage
from engine.model.gguf_file import GgufFile
from engine.model.hf_folder.config import read_config as read_folder_config
from engine.model.hf_folder.config import ties_embeddings
from engine.model.hf_folder.tensors import FolderTensors
from engine.model.hf_folder.tokenizer import FolderTokenizer
from engine.model.hf_folder.weights import read_weights as read_folder_weights
from engine.model.kv_formats import format_of_dtype, kv_format
from engine.model.llama_gguf import read_config, read_weights
from engine.model.model_files import find_model
from engine.model.paged_model import ModelConfig, ModelWeights
from engine.model.random_mla import RANDOM_MLA_CONFIG, random_mla_weights
from engine.model.random_model import RANDOM_CONFIG, ByteTokenizer, random_weights
from engine.model.text_stream import TextStream
from engine.model.tokenizer import GgufTokenizer
from engine.model.weight_places import moved

RANDOM_SEED: Final = 0
BUILT_IN: Final = ("random", "random-mla")


class ModelText(Protocol):
    """The text side of a model."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt."""
        ...

    def apply_chat_template(self, messages: list[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation."""
        ...

    def text_stream(self) -> TextStream:
        """Return a fresh reader of generated tokens."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model in memory, before any cache is allocated: `TorchRunner(config, weights, …)` is next.

    Attributes:
        path: Where it was read from; None for a built-in one.
    """

    config: ModelConfig
    weights: ModelWeights
    text: ModelText
    path: Path | None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence."""
        return self.text.eos_token_ids

    def bytes_per_token(self, format_name: str | None = None) -> int:
        """Return what a token of the cache weighs over all layers.

        Args:
            format_name: Name in `KV_FORMATS`; None for the type that the weights have.

        Raises:
            KvFormatError: No format of that name here.
        """
        own = self.weights.embedding.dtype
        named = format_of_dtype(own) if format_name is None else kv_format(format_name)
        of_group = self.config.cache_shape(num_blocks=1, block_size=1).bytes_per_token(named)
        return len(self.config.kv_groups) * of_group


def open_model(
    name: str, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> OpenedModel:
    """Open a model by name or path, its weights as `dtype` on `device`.

    Args:
        name: "random", "random-mla", a published name, a GGUF file, or a model folder.
        dtype: What the model computes in.
        device: Where it computes.

    Raises:
        EngineError: Nothing there, or nothing that can be read; the message says what.
    """
    if name == "random":
        weights = moved(random_weights(RANDOM_SEED), dtype, device)
        return OpenedModel(RANDOM_CONFIG, weights, ByteTokenizer(), None)
    if name == "random-mla":
        latent = moved(random_mla_weights(RANDOM_SEED), dtype, device)
        return OpenedModel(RANDOM_MLA_CONFIG, latent, ByteTokenizer(), None)
    path = find_model(name)
    if path.is_dir():
        return _open_folder(path, dtype, torch.device(device))
    return _open_gguf(path, dtype, torch.device(device))


def _open_gguf(path: Path, dtype: torch.dtype, device: torch.device) -> OpenedModel:
    with GgufFile(path) as file:
        config = read_config(file)
        weights = read_weights(file, config, dtype=dtype, device=device)
        return OpenedModel(config, weights, GgufTokenizer(file), path)


def _open_folder(path: Path, dtype: torch.dtype, device: torch.device) -> OpenedModel:
    config = read_folder_config(path)
    # Quickly read, and more often at fault than the weights.
    text = FolderTokenizer(path, vocab_size=config.vocab_size)
    with FolderTensors(path) as tensors:
        weights = read_folder_weights(
            tensors, config, tied=ties_embeddings(path), dtype=dtype, device=device
        )
    return OpenedModel(config, weights, text, path)
