"""Lay out a step for every KV group of a model: the same rows, over each group's own blocks."""

import dataclasses
from collections.abc import Sequence as Run

import torch

from engine.model.layer_windows import KvGroup
from engine.model.step_batch import RunnableSequence, StepBatch, TablePart, pack_step


def pack_groups(
    sequences: Run[RunnableSequence],
    num_new_tokens: Run[int],
    *,
    groups: Run[KvGroup],
    block_size: int,
    device: torch.device,
    cache_rounds: bool = False,
) -> StepBatch:
    """Return the first group's batch, with the others' beside it.

    Args:
        sequences: What runs; entry i of a table belongs to group i % len(groups).
        num_new_tokens: How many tokens of each.
        groups: What each group's layers attend to.
        block_size: Tokens of a block.
        device: Where the tensors go.
        cache_rounds: Whether what is read back differs from what was stored (see `pack_step`).
    """
    first, *others = (
        pack_step(
            sequences,
            num_new_tokens,
            block_size=block_size,
            device=device,
            window=group.window,
            cache_rounds=cache_rounds,
            table=TablePart(index, len(groups)),
        )
        for index, group in enumerate(groups)
    )
    return dataclasses.replace(first, others=tuple(others)) if others else first
