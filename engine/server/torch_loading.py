"""Load a real model for serving: its weights first, then a cache that fits beside them."""

from dataclasses import fields, is_dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from engine.available_memory import available_bytes
from engine.block_table import blocks_for
from engine.memory_plan import (
    MemoryPlan,
    MemoryRequest,
    Reserve,
    activation_bytes,
    bytes_in_words,
    plan_memory,
)
from engine.model.kv_formats import KV_FORMATS, format_of_dtype
from engine.model.open_model import OpenedModel, open_model
from engine.model.torch_runner import TorchRunner
from engine.server.serve_options import ServeOptions

CPU_SHARE: Final = 0.25  # of what is free, for a machine that has other things to do
GPU_SHARE: Final = 0.9  # of what is free: fragments and other libraries take the rest
BATCHES_OF_USE: Final = 4  # the running batch at full context, and three times that kept for later


class Loaded(NamedTuple):
    """A runner, the model that it runs, and how its cache got its size."""

    runner: TorchRunner
    model: OpenedModel
    plan: MemoryPlan


class Device(NamedTuple):
    """Where a model runs, and what it computes in."""

    name: str
    dtype: torch.dtype

    @property
    def is_gpu(self) -> bool:
        """Whether it has memory of its own."""
        return self.name == "cuda"

    @classmethod
    def best(cls) -> "Device":
        """Return the GPU where there is one, else the CPU, whose fp32 is its fastest."""
        if torch.cuda.is_available():
            return cls("cuda", torch.bfloat16)
        return cls("cpu", torch.float32)

    @classmethod
    def of(cls, model: OpenedModel) -> "Device":
        """Return where a model really is: built-in ones stay on the CPU."""
        embedding = model.weights.embedding
        return cls(embedding.device.type, embedding.dtype)


def load_torch(options: ServeOptions) -> Loaded:
    """Open the model, plan its memory, and allocate the cache.

    Raises:
        EngineError: The model cannot be opened, or the cache that was asked for does not fit.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    best = Device.best()
    model = open_model(options.model, dtype=best.dtype, device=best.name)
    device = Device.of(model)
    plan = plan_memory(memory_request(options, model, device, free_bytes(device)))
    runner = TorchRunner(
        model.config,
        model.weights,
        num_blocks=plan.num_blocks,
        block_size=options.block_size,
        eos_token_ids=model.eos_token_ids,
        kv_format=options.kv_format,
        num_host_blocks=options.host_blocks,
        attention=options.attention,
    )
    return Loaded(runner, model, plan)


def free_bytes(device: Device) -> int:
    """Return the device's free memory, with the weights there already."""
    if device.is_gpu:
        free, _ = torch.cuda.mem_get_info()
        return int(free)
    return available_bytes()


def memory_request(
    options: ServeOptions, model: OpenedModel, device: Device, free: int
) -> MemoryRequest:
    """Say what is to fit.

    Args:
        free: What is left on the device beside the weights.
    """
    of_weights = weight_bytes(model.weights)
    memory, source = _memory(options, device, free, of_weights)
    cache = model.config.cache_shape(num_blocks=1, block_size=1)
    per_token = {name: cache.bytes_per_token(each) for name, each in KV_FORMATS.items()}
    windows = tuple(group.window for group in model.config.kv_groups)
    computed_in = format_of_dtype(model.weights.embedding.dtype)
    context = min(options.max_context or model.config.max_context, model.config.max_context)
    reserves = [Reserve("weights", of_weights), _activations(options, model)]
    if options.host_blocks and not device.is_gpu:
        name = options.kv_format or computed_in.name
        host_bytes = options.host_blocks * options.block_size * per_token[name]
        reserves.append(Reserve(f"{options.host_blocks} host blocks", host_bytes))
    return MemoryRequest(
        memory_bytes=memory,
        kv_format=options.kv_format or computed_in.name,
        bytes_per_token=per_token,
        block_size=options.block_size,
        max_context=context,
        reserves=tuple(reserves),
        # Attention in torch gathers one layer at a time, of all blocks in use at the most.
        workspace_bytes_per_token=per_token[computed_in.name]
        // len(model.config.kv_groups[0].layers),
        windows=windows,
        chunk_tokens=options.token_budget,
        num_blocks=options.num_blocks or None,
        most_blocks=BATCHES_OF_USE
        * options.max_batch
        * len(windows)
        * blocks_for(context, options.block_size),
        source=source,
    )


def _memory(options: ServeOptions, device: Device, free: int, of_weights: int) -> tuple[int, str]:
    """Return the memory to use, weights included, and where that number comes from."""
    place = "the GPU's free memory" if device.is_gpu else "this machine's available memory"
    everything = free + of_weights
    if options.memory_bytes is not None:
        words = f"--memory, of {bytes_in_words(everything)} that is {place}"
        return min(options.memory_bytes, everything), words
    if options.num_blocks:
        return everything, place
    share = GPU_SHARE if device.is_gpu else CPU_SHARE
    return int(share * free) + of_weights, f"{share:.0%} of {place}, and the weights"


def _activations(options: ServeOptions, model: OpenedModel) -> Reserve:
    config = model.config
    num_bytes = activation_bytes(
        token_budget=options.token_budget,
        max_batch=options.max_batch,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        vocab_size=config.vocab_size,
    )
    return Reserve("activations of a full step", num_bytes, shrinkable=True)


def weight_bytes(weights: object) -> int:
    """Return what all tensors of a model's weights take, each storage once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in _tensors(weights)
    }
    return sum(storages.values())


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in _tensors(each)]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, each.name) for each in fields(value)]
        return [tensor for part in parts for tensor in _tensors(part)]
    return []
