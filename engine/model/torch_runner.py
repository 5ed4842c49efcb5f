"""The runner that runs a real model: a step's plan in, sampled tokens out."""

import dataclasses
import secrets
import time
from pathlib import Path

import torch

from engine.block_moves import apply_moves
from engine.model.gguf_file import GgufFile
from engine.model.kv_formats import kv_format as format_named
from engine.model.kv_tensors import KvTensors
from engine.model.llama import LlamaConfig, LlamaModel, LlamaWeights
from engine.model.llama_gguf import read_config, read_weights
from engine.model.sampling import sample
from engine.model.step_batch import StepBatch, pack_step
from engine.runner import NO_TOKEN, RunnerDescription, StepPlan, StepResult
from engine.sequence import Sequence


class TorchRunner:
    """Runs a Llama-family model over a paged cache of its own. One thread at a time."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        *,
        num_blocks: int,
        block_size: int,
        eos_token_ids: tuple[int, ...] = (),
        kv_format: str | None = None,
        num_host_blocks: int = 0,
    ) -> None:
        """Allocate the cache: `num_blocks` blocks of `block_size` slots, beside the weights.

        Args:
            kv_format: Name in `KV_FORMATS`; None keeps keys and values in the weights' own type.
            num_host_blocks: Blocks of host memory to swap out to.

        Raises:
            KvFormatError: No format of that name here.
        """
        self._config = config
        self._device = weights.embedding.device
        shape = config.kv_shape(num_blocks=num_blocks, block_size=block_size)
        self._kv = KvTensors(
            shape,
            dtype=weights.embedding.dtype,
            kv_format=None if kv_format is None else format_named(kv_format),
            num_host_blocks=num_host_blocks,
            device=self._device,
        )
        self._model = LlamaModel(config, weights, self._kv)
        self._eos_token_ids = eos_token_ids
        # What an unseeded request draws from: another one in each process.
        self._free_seed = secrets.randbits(64)

    @classmethod
    def from_gguf(cls, path: Path, *, num_blocks: int, block_size: int) -> "TorchRunner":
        """Load a GGUF file in fp32 on the CPU.

        Raises:
            GgufError: The file cannot be read or is no Llama-family model.
        """
        with GgufFile(path) as file:
            config = read_config(file)
            weights = read_weights(file, config)
            eos = file.metadata.get("tokenizer.ggml.eos_token_id")
        return cls(
            config,
            weights,
            num_blocks=num_blocks,
            block_size=block_size,
            eos_token_ids=(eos,) if isinstance(eos, int) else (),
        )

    @property
    def kv(self) -> KvTensors:
        """The cache that block ids stand for."""
        return self._kv

    def execute(self, plan: StepPlan) -> StepResult:
        """Copy blocks, run the plan's tokens, sample where a sequence is complete."""
        started_ns = time.perf_counter_ns()
        apply_moves(self._kv, plan.block_moves)
        token_ids = [NO_TOKEN] * len(plan.sequences)
        if not plan.sequences:
            return StepResult(token_ids, time.perf_counter_ns() - started_ns, 0)
        batch = self._pack(plan)
        logits = self._model.forward(batch)
        computed_ns = time.perf_counter_ns()
        for index, token_id in zip(batch.sampled, self._sample(plan, batch, logits), strict=True):
            token_ids[index] = token_id
        sampled_ns = time.perf_counter_ns()
        return StepResult(token_ids, computed_ns - started_ns, sampled_ns - computed_ns)

    def _pack(self, plan: StepPlan) -> StepBatch:
        batch = self._pack_under(plan, self._config.uniform_window)
        if self._config.mixes_windows:
            windowed = self._pack_under(plan, self._config.sliding_window)
            batch = dataclasses.replace(batch, windowed=windowed)
        return batch

    def _pack_under(self, plan: StepPlan, window: int | None) -> StepBatch:
        return pack_step(
            plan.sequences,
            plan.num_new_tokens,
            block_size=self._kv.shape.block_size,
            device=self._device,
            window=window,
        )

    def _sample(self, plan: StepPlan, batch: StepBatch, logits: torch.Tensor) -> list[int]:
        sampled = [plan.sequences[index] for index in batch.sampled]
        return sample(
            logits,
            [sequence.sampling for sequence in sampled],
            seeds=[self._seed_of(sequence) for sequence in sampled],
            positions=[sequence.num_tokens for sequence in sampled],
        )

    def _seed_of(self, sequence: Sequence) -> int:
        seed = sequence.sampling.seed
        return self._free_seed + sequence.seq_id if seed is None else seed

    def describe(self) -> RunnerDescription:
        """Say what model this is and what a token of its cache weighs."""
        return RunnerDescription(
            runner="torch",
            model=self._config.name,
            kv_format=self._kv.format.name,
            bytes_per_token=self._kv.shape.bytes_per_token(self._kv.format),
            eos_token_ids=self._eos_token_ids,
            vocab_size=self._config.vocab_size,
            max_context=self._config.max_context,
            # Where any layer attends to all positions, no block may be given back.
            mask="causal, mixed windows" if self._config.mixes_windows else "causal",
            sliding_window=self._config.uniform_window,
        )
