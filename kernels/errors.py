"""Errors of the kernels.

KernelError
└── ShapeError   tensors whose shapes, dtypes or devices do not fit each other
"""


class KernelError(Exception):
    """Base of everything the kernels raise on purpose."""


class ShapeError(KernelError, ValueError):
    """A tensor does not have the shape, dtype or device that its neighbours demand."""
