"""What `gpu_check.sh` runs: GPU tests, then the kernel bench, each with a limit; one summary."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEST_SECONDS = 300
BENCH_SECONDS = 160
EXIT_GOOD, EXIT_BAD, EXIT_UNREACHABLE = 0, 1, 3
TIMED_OUT = 124
TESTS = [
    *("-m", "pytest", "-m", "gpu", "-q", "-rs", "-p", "no:cacheprovider"),
    *("tests/kernels/test_on_gpu.py", "tests/engine/test_attention_on_gpu.py"),
]
BENCH = ["-m", "engine.commands.bench_kernels", "--json"]


@dataclass(frozen=True)
class Part:
    """One part's end: its exit code (124: out of time), seconds, and last line."""

    name: str
    code: int
    seconds: float
    last_line: str


def main(argv: list[str]) -> int:
    """Run both parts, write `summary.json` to the folder and print the summary."""
    folder = Path(argv[0])
    device = gpu_name()
    if device is None:
        print("gpu_check: no GPU that torch can use here; nothing was run")
        return EXIT_UNREACHABLE
    parts = [
        run_part("tests", TESTS, folder, limit=TEST_SECONDS),
        run_part("bench", BENCH, folder, limit=BENCH_SECONDS),
    ]
    summary = summary_of(device, parts, read_report(folder / "bench.out"))
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(as_text(summary))
    return EXIT_GOOD if summary["is_good"] else EXIT_BAD


def gpu_name() -> str | None:
    """Return the name of the first GPU, or None where torch or a GPU is missing."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def run_part(name: str, arguments: list[str], folder: Path, *, limit: float) -> Part:
    """Run python with these arguments; its output goes to NAME.out and NAME.err in the folder."""
    started = time.monotonic()
    with (folder / f"{name}.out").open("w") as out, (folder / f"{name}.err").open("w") as err:
        try:
            code = subprocess.run(
                [sys.executable, *arguments], cwd=ROOT, stdout=out, stderr=err, timeout=limit
            ).returncode
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
    said = (folder / f"{name}.out").read_text() + (folder / f"{name}.err").read_text()
    lines = [line for line in said.splitlines() if line.strip()]
    seconds = round(time.monotonic() - started, 1)
    return Part(name, code, seconds, lines[-1] if lines else "")


def read_report(path: Path) -> dict[str, Any] | None:
    """Return the bench's JSON, or None where it did not get that far."""
    try:
        report: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return report


def summary_of(device: str, parts: list[Part], report: dict[str, Any] | None) -> dict[str, Any]:
    """Put together what is written; aims that are missed are shown, and fail nothing."""
    return {
        "device": device,
        "is_good": all(part.code == 0 for part in parts) and report is not None,
        "parts": [asdict(part) for part in parts],
        "bench": report,
    }


def as_text(summary: dict[str, Any]) -> str:
    """Return the summary for a person."""
    lines = [f"gpu_check on {summary['device']}: {'good' if summary['is_good'] else 'NOT GOOD'}"]
    lines += [
        f"  {part['name']:<6} exit {part['code']} after {part['seconds']:.0f} s: "
        f"{part['last_line'] if part['name'] == 'tests' or part['code'] else 'see below'}"
        for part in summary["parts"]
    ]
    report = summary["bench"]
    if report is None:
        return "\n".join([*lines, "  the bench left no figures: see bench.err"])
    for name in ("decode_bandwidth", "paged_over_contiguous"):
        ratio, aim = report[f"{name}_ratio"], report[f"{name}_aim"]
        met = "met" if ratio is not None and ratio >= aim else "missed"
        lines.append(
            f"  {name:<22} {ratio if ratio is None else round(ratio, 3)} (aim {aim}: {met})"
        )
    for one in report["kernels"]:
        microseconds, share = one["seconds"] * 1e6, one["bandwidth_ratio"]
        lines.append(f"  {one['name']:<46} {microseconds:>10,.1f} µs  {share:.2f} of copy")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
