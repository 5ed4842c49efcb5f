"""Run every check of `make check`, one line each; exit 1 if any of them fails."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
MOST_LINES = 350

CHECKS: dict[str, list[str]] = {
    "ruff": [str(BIN / "ruff"), "check", "."],
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "types": [str(BIN / "mypy"), "--no-error-summary"],
    "imports": [str(BIN / "lint-imports"), "--no-logo"],
    "boards": [sys.executable, "-m", "grafana.generate", "--check"],
    "alerts": [sys.executable, "-m", "grafana.alerts", "--check"],
    "metrics page": [sys.executable, "-m", "agent.metrics.page", "--check"],
}


def long_files() -> list[str]:
    """Return the Python files that have grown past the limit."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        f"{name}: {lines} lines, at most {MOST_LINES}: split it by noun"
        for name in listed.stdout.split()
        if not name.startswith("migrations/versions/") and (ROOT / name).exists()
        if (lines := len((ROOT / name).read_text().splitlines())) > MOST_LINES
    ]


def report(name: str, failures: str, seconds: float) -> bool:
    """Print one check's line, with what it found."""
    print(f"{name:14} {'FAILED' if failures else 'ok':7} {seconds:5.1f} s", flush=True)
    if failures:
        print(failures)
    return not failures


def main() -> int:
    """Run all checks, also after one of them failed."""
    good = report("file length", "\n".join(long_files()), 0.0)
    for name, command in CHECKS.items():
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        output = (done.stdout + done.stderr).strip() or f"exit {done.returncode}"
        good &= report(name, output if done.returncode else "", time.monotonic() - start)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
