"""Move all of a model's weights to a device and a type."""

import dataclasses
from typing import Any, TypeVar

import torch

Weights = TypeVar("Weights")


def moved(weights: Weights, dtype: torch.dtype, device: torch.device | str) -> Weights:
    """Return the same weights as `dtype` on `device`; a tensor that is used twice stays one.

    Args:
        weights: A frozen dataclass of tensors, and of lists and dataclasses of them.
        dtype: Of every tensor afterwards.
        device: Of every tensor afterwards.
    """
    done: dict[int, torch.Tensor] = {}

    def place(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return done.setdefault(id(value), value.to(device, dtype))
        if isinstance(value, list):
            return [place(one) for one in value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {
                each.name: place(getattr(value, each.name)) for each in dataclasses.fields(value)
            }
            return type(value)(**fields)
        return value

    placed: Weights = place(weights)
    return placed
