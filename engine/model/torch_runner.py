"""The runner that runs a real model: a step's plan in, sampled tokens out."""

import time

import torch

from engine.block_moves import apply_moves
from engine.errors import StepMemoryError
from engine.model.group_batches import pack_groups
from engine.model.paged_model import (
    CacheSettings,
    ModelConfig,
    ModelWeights,
    PagedCache,
    build_model,
)
from engine.model.step_batch import StepBatch
from engine.model.step_sampler import StepSampler
from engine.runner import NO_TOKEN, RunnerDescription, StepPlan, StepResult


class TorchRunner:
    """Runs a model over a paged cache of its own. One thread at a time."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        *,
        num_blocks: int,
        block_size: int,
        eos_token_ids: tuple[int, ...] = (),
        kv_format: str | None = None,
        num_host_blocks: int = 0,
        attention: str | None = None,
    ) -> None:
        """Allocate the cache: `num_blocks` blocks of `block_size` slots, beside the weights.

        Args:
            config: Sizes, with latent attention or without.
            weights: What the sizes are of.
            num_blocks: Blocks on the weights' device.
            block_size: Tokens of a block.
            eos_token_ids: What ends a sequence.
            kv_format: Name in `KV_FORMATS`; None keeps the cache in the weights' own type.
            num_host_blocks: Blocks of host memory to swap out to.
            attention: Name of a backend (`attention_named`); None for the best there is.

        Raises:
            AttentionUnavailableError: The attention asked for cannot run here.
            KvFormatError: No format of that name here.
        """
        self._config, self._groups = config, config.kv_groups
        settings = CacheSettings(num_blocks, block_size, kv_format, num_host_blocks, attention)
        built = build_model(config, weights, settings)
        self._model, self._kv, self._device = built.model, built.cache, built.device
        self._eos_token_ids = eos_token_ids
        self._sampler = StepSampler()

    @property
    def kv(self) -> PagedCache:
        """The cache that block ids stand for."""
        return self._kv

    def execute(self, plan: StepPlan) -> StepResult:
        """Copy blocks, run the plan's tokens, sample where a sequence is complete.

        Raises:
            StepMemoryError: The device has not the memory for a step of this size.
        """
        started_ns = time.perf_counter_ns()
        apply_moves(self._kv, plan.block_moves)
        token_ids = [NO_TOKEN] * len(plan.sequences)
        if not plan.sequences:
            return StepResult(token_ids, time.perf_counter_ns() - started_ns, 0)
        try:
            return self._run(plan, token_ids, started_ns)
        except torch.OutOfMemoryError as error:  # what was computed is computed again
            raise StepMemoryError(str(error)) from error

    def _run(self, plan: StepPlan, token_ids: list[int], started_ns: int) -> StepResult:
        """Compute and sample; what it writes is the same when it runs again."""
        batch = self._pack(plan)
        logits = self._model.forward(batch)
        computed_ns = time.perf_counter_ns()
        result = StepResult(token_ids, computed_ns - started_ns, 0)
        self._sampler.fill(result, plan, batch.sampled, logits)
        result.sample_ns = time.perf_counter_ns() - computed_ns
        return result

    def _pack(self, plan: StepPlan) -> StepBatch:
        return pack_groups(
            plan.sequences,
            plan.num_new_tokens,
            groups=self._groups,
            block_size=self._kv.shape.block_size,
            device=self._device,
            cache_rounds=self._kv.rounds,
        )

    def describe(self) -> RunnerDescription:
        """Say what model this is and what a token of its cache weighs."""
        return RunnerDescription(
            runner="torch",
            model=self._config.name,
            kv_format=self._kv.format.name,
            # Every group takes a block for the token, filled with its layers or not.
            bytes_per_token=len(self._groups) * self._kv.shape.bytes_per_token(self._kv.format),
            eos_token_ids=self._eos_token_ids,
            vocab_size=self._config.vocab_size,
            max_context=self._config.max_context,
            mask="causal, mixed windows" if self._config.windows.are_mixed else "causal",
            sliding_window=self._config.windows.of_all_layers,
            group_windows=tuple(group.window for group in self._groups),
        )
