"""Errors of the kernels.

KernelError
├── ShapeError         tensors whose shapes, dtypes or devices do not fit each other
├── UnavailableError   what was asked for needs another GPU than this one
└── OverlapError       blocks to copy at once are both read and written
"""


class KernelError(Exception):
    """Base of everything the kernels raise on purpose."""


class ShapeError(KernelError, ValueError):
    """A tensor does not have the shape, dtype or device that its neighbours demand."""


class UnavailableError(KernelError):
    """This GPU, or the lack of one, cannot run what was asked for."""


class OverlapError(KernelError, ValueError):
    """A block would be read and written by the same batch of copies, or written twice."""

    def __init__(self, block_id: int) -> None:
        super().__init__(
            f"block {block_id} is a target and occurs again in the same batch; the copies of one "
            "batch run in no order, so copy in two batches"
        )
        self.block_id = block_id
