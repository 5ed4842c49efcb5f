"""What every way to attend over the paged cache can do, and the errors of choosing one."""

from typing import Protocol

from torch import Tensor

from engine.errors import EngineError
from engine.model.step_batch import StepBatch


class AttentionBackend(Protocol):
    """Attention over one cache, for one number of query heads. One thread at a time."""

    @property
    def name(self) -> str:
        """What `--attention` calls it."""
        ...

    def prepare(self, batch: StepBatch) -> None:
        """Do once per step what all layers share; before the step's first `__call__`."""
        ...

    def store(self, layer: int, *, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write each row's key and value into its slot.

        Args:
            layer: Index of the layer.
            key: [num_tokens, num_kv_heads, head_dim], contiguous in the last dim.
            value: Same shape as `key`.
            slots: [num_tokens] int64, every one a real slot.
        """
        ...

    def __call__(
        self,
        layer: int,
        batch: StepBatch,
        *,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
    ) -> None:
        """Attend for every row of the batch; the rows' own keys must be stored already.

        Args:
            layer: Index of the layer.
            batch: What each row is.
            query: [num_tokens, num_heads, head_dim], contiguous in the last dim.
            key: [num_tokens, num_kv_heads, head_dim], the rows' own keys.
            value: Same shape as `key`.
            out: [num_tokens, num_heads * head_dim]; changed in place.
        """
        ...


class AttentionUnavailableError(EngineError):
    """The attention asked for cannot run here: unknown, not installed, or made for other memory."""

    exit_code = 2

    def __init__(self, name: str, reason: str, *, instead: str) -> None:
        super().__init__(f"attention {name!r} cannot run here: {reason}; {instead}")
        self.name = name
        self.reason = reason
