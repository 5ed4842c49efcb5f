"""`kvpulse bench kernels`: each Triton kernel on this machine's GPU, against the GPU's own copy."""

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

    from kernels.bench.kernel_case import KernelFigures, Timer
    from kernels.bench.suite import SuiteSizes

EXIT_GOOD: Final = 0
EXIT_BAD: Final = 1
EXIT_UNREACHABLE: Final = 3
DECODE_BANDWIDTH_AIM: Final = 0.85
CONTIGUOUS_AIM: Final = 0.95
WITHOUT: Final = "what needs no GPU is tested by `make test ARGS=tests/kernels`"


def main(argv: list[str]) -> int:
    """Check, measure and print; exit 1 when a kernel's result is wrong, 3 without a GPU."""
    options = _parse(argv)
    reason = missing_gpu()
    if reason is not None:
        print(f"bench kernels: {reason}; {WITHOUT}", file=sys.stderr)
        return EXIT_UNREACHABLE
    from kernels.bench.kernel_case import WrongResultError
    from kernels.bench.suite import SuiteSizes

    sizes = SuiteSizes(batch=options.batch)
    reason = missing_memory(sizes)
    if reason is not None:
        print(f"bench kernels: {reason}", file=sys.stderr)
        return EXIT_UNREACHABLE
    try:
        report = measure(sizes, first_gpu(repeats=options.repeat), with_sweep=options.sweep)
    except WrongResultError as error:
        print(f"bench kernels: {error}", file=sys.stderr)
        return EXIT_BAD
    print(json.dumps(report, indent=2) if options.json else as_table(report))
    return EXIT_GOOD


def missing_gpu() -> str | None:
    """Return what this machine lacks to run the kernels, or None."""
    try:
        import torch
    except ModuleNotFoundError:
        return "torch is not installed: pip install 'kvpulse-app[engine]' from the checkout"
    if not torch.cuda.is_available():
        return (
            f"it needs an NVIDIA GPU and a CUDA build of torch; torch {torch.__version__} finds no "
            "GPU here"
        )
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 is set, which interprets the kernels: unset it"
    return None


def missing_memory(sizes: "SuiteSizes") -> str | None:
    """Return how much device memory is short and what to do, or None."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    if free >= sizes.needed_bytes:
        return None
    return (
        f"it needs about {sizes.needed_bytes / 2**30:.1f} GiB of device memory and "
        f"{free / 2**30:.1f} GiB are free; a smaller --batch (now {sizes.batch}) needs less"
    )


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the kernels run on, how calls are timed there, and how fast it copies."""

    device: "torch.device"
    name: str
    num_cores: int
    has_fp8: bool
    timer: "Timer"
    copy_bytes_per_second: float


def first_gpu(*, repeats: int) -> Gpu:
    """Return device 0 with a timer on it, and measure its copy."""
    import torch

    from kernels.bench.cuda_timer import CudaTimer, copy_bandwidth
    from kernels.shapes import FP8_CAPABILITY

    device = torch.device("cuda", 0)
    properties = torch.cuda.get_device_properties(device)
    timer = CudaTimer(repeats=repeats, device=device)
    return Gpu(
        device=device,
        name=properties.name,
        num_cores=properties.multi_processor_count,
        has_fp8=torch.cuda.get_device_capability(device) >= FP8_CAPABILITY,
        timer=timer,
        copy_bytes_per_second=copy_bandwidth(timer, device),
    )


def measure(sizes: "SuiteSizes", gpu: Gpu, *, with_sweep: bool) -> dict[str, Any]:
    """Measure everything.

    Raises:
        WrongResultError: A kernel's result is wrong.
    """
    import torch
    import triton

    from kernels.bench.kernel_case import measure_all
    from kernels.bench.suite import suite

    cases = suite(sizes, device=gpu.device, num_cores=gpu.num_cores, has_fp8=gpu.has_fp8)
    figures = measure_all(cases, gpu.timer, copy_bytes_per_second=gpu.copy_bytes_per_second)
    found = {
        "device": gpu.name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_bytes_per_second": gpu.copy_bytes_per_second,
    }
    return found | report_of(figures, swept=_sweep(sizes, gpu) if with_sweep else [])


def report_of(
    figures: "list[KernelFigures]", *, swept: "list[KernelFigures] | None" = None
) -> dict[str, Any]:
    """Return what is printed: every figure, and whether the aims are met by the worst of them."""
    aimed = [one for one in figures if one.has_aim]
    contiguous = [one.contiguous_ratio for one in aimed if one.contiguous_ratio is not None]
    report: dict[str, Any] = {
        "decode_bandwidth_ratio": min((one.bandwidth_ratio for one in aimed), default=None),
        "decode_bandwidth_aim": DECODE_BANDWIDTH_AIM,
        "paged_over_contiguous_ratio": min(contiguous, default=None),
        "paged_over_contiguous_aim": CONTIGUOUS_AIM,
        "kernels": [asdict(one) for one in figures],
    }
    if swept:
        report["sweep"] = [asdict(one) for one in sorted(swept, key=lambda one: one.seconds)]
    return report


def as_table(report: dict[str, Any]) -> str:
    """Return a report as text, one kernel a line."""
    rate = report.get("copy_bytes_per_second", 0) / 1e9
    lines = [
        f"{report.get('device', 'a GPU')}: copies {rate:,.0f} GB/s",
        f"{'kernel':<46} {'µs':>10} {'GB/s':>7} {'of copy':>8} {'in order':>9} {'vs torch':>9}",
        *(_line(one) for one in report["kernels"] + report.get("sweep", [])),
        *(
            f"{name}: {_or_dash(report[f'{name}_ratio'])}, aim {report[f'{name}_aim']}"
            for name in ("decode_bandwidth", "paged_over_contiguous")
        ),
    ]
    return "\n".join(lines)


def _line(one: dict[str, Any]) -> str:
    return (
        f"{one['name']:<46} {one['seconds'] * 1e6:>10,.1f} {one['bytes_per_second'] / 1e9:>7,.0f} "
        f"{one['bandwidth_ratio']:>8.2f} {_or_dash(one['contiguous_ratio']):>9} "
        f"{_or_dash(one['torch_ratio']):>9}"
    )


def _sweep(sizes: "SuiteSizes", gpu: Gpu) -> "list[KernelFigures]":
    """Time the alternatives to the chosen tiles; what the GPU has no room for is left out."""
    from triton.runtime.errors import OutOfResources

    from kernels.bench.kernel_case import measure_case
    from kernels.bench.suite import sweep

    figures = []
    for name, build in sweep(sizes, device=gpu.device):
        case = replace(build(), name=name, in_order=None, torch_run=None)
        try:
            figures.append(
                measure_case(case, gpu.timer, copy_bytes_per_second=gpu.copy_bytes_per_second)
            )
        except OutOfResources as error:
            print(f"bench kernels: {name} left out: {error}", file=sys.stderr)
    return figures


def _or_dash(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kvpulse bench kernels",
        description=(
            "Every Triton kernel at the sizes of Llama 3 8B (32 query heads over 8 key heads of "
            "128, block 16), checked against its reference and then timed: share of the copy "
            "bandwidth measured in the same run, scattered blocks against blocks in order, and "
            "torch's own attention. Needs an NVIDIA GPU."
        ),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--repeat", type=_positive, default=20, help="timed calls of each; the median counts (20)"
    )
    parser.add_argument("--batch", type=_positive, default=64, help="sequences that decode (64)")
    parser.add_argument(
        "--sweep", action="store_true", help="also time other tiles than the chosen"
    )
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
