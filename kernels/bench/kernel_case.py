"""One kernel on one input: checked against its reference, timed, and set against its roof.

Pure: the clock is passed in, and nothing here asks for a device.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernels.errors import KernelError

Timer = Callable[[Callable[[], object]], float]
"""Returns the median seconds that a call takes on the device."""


class WrongResultError(KernelError):
    """A kernel that was to be timed differs from its reference."""

    def __init__(self, name: str, difference: float, tolerance: float) -> None:
        super().__init__(
            f"{name} differs from its reference by {difference:.3g}, more than {tolerance:.3g}; "
            "a wrong result is not timed"
        )
        self.name = name
        self.difference = difference


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel over inputs that lie ready.

    Attributes:
        run: Launches it.
        difference: Runs it and returns the largest absolute difference from the reference.
        tolerance: What the difference may be.
        num_bytes: Bytes that have to be read and written, each once.
        num_flops: Multiplications and additions; 0 where they do not matter.
        in_order: The same kernel over the same tokens with blocks in order; None if there is none.
        torch_run: What torch itself offers for the same result; None if nothing.
        has_aim: Whether the aims for decode are about this case.
    """

    name: str
    run: Callable[[], object]
    difference: Callable[[], float]
    tolerance: float
    num_bytes: int
    num_flops: int = 0
    in_order: Callable[[], object] | None = None
    torch_run: Callable[[], object] | None = None
    has_aim: bool = False


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """What a case gave. None: not measured for this kernel.

    Attributes:
        bandwidth_ratio: Share of the copy bandwidth measured in the same run.
        contiguous_ratio: Time with blocks in order over time with blocks scattered.
        torch_ratio: Torch's time over the kernel's: above 1 the kernel is faster.
    """

    name: str
    seconds: float
    bytes_per_second: float
    bandwidth_ratio: float
    flops_per_second: float | None
    contiguous_ratio: float | None
    torch_ratio: float | None
    difference: float
    has_aim: bool


def measure_case(case: KernelCase, timer: Timer, *, copy_bytes_per_second: float) -> KernelFigures:
    """Check a case, then time it and what it is compared with.

    Raises:
        WrongResultError: The kernel's result is wrong.
    """
    difference = case.difference()
    if not difference <= case.tolerance:  # NaN is wrong, too
        raise WrongResultError(case.name, difference, case.tolerance)
    seconds = timer(case.run)
    rate = case.num_bytes / seconds
    return KernelFigures(
        name=case.name,
        seconds=seconds,
        bytes_per_second=rate,
        bandwidth_ratio=rate / copy_bytes_per_second,
        flops_per_second=case.num_flops / seconds if case.num_flops else None,
        contiguous_ratio=None if case.in_order is None else timer(case.in_order) / seconds,
        torch_ratio=None if case.torch_run is None else timer(case.torch_run) / seconds,
        difference=difference,
        has_aim=case.has_aim,
    )


def measure_all(
    builders: Iterable[Callable[[], KernelCase]], timer: Timer, *, copy_bytes_per_second: float
) -> list[KernelFigures]:
    """Measure case after case; each is built, measured and given up before the next.

    Raises:
        WrongResultError: A kernel's result is wrong.
    """
    return [
        measure_case(build(), timer, copy_bytes_per_second=copy_bytes_per_second)
        for build in builders
    ]
