"""The two distributions: what their wheels hold, and what installs and imports alone."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parents[2]
APP_FOLDERS = {"agent", "dashboard", "engine", "grafana", "kernels", "migrations"}


def build_wheel(source: Path, target: Path) -> Path:
    """Build one wheel from a copy of the sources, so that the checkout stays clean."""
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", str(target), str(source)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    copy = folder / "sources"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    names = listed or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py")]
    for name in names:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return {
        "kvpulse": build_wheel(copy / "kvpulse", folder / "kvpulse"),
        "kvpulse-app": build_wheel(copy, folder / "app"),
    }


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An environment that holds numpy and nothing else."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True
    )
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    numpy_folder = Path(numpy.__file__).parent
    for folder in (numpy_folder, numpy_folder.parent / "numpy.libs"):
        if folder.exists():
            (site / folder.name).symlink_to(folder)
    return python


def pip(python: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--python", str(python), *arguments],
        check=True,
        capture_output=True,
        text=True,
    )


def top_folders(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name.split("/")[0] for name in names if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_instrumentation_wheel_holds_only_its_own_package(wheels: dict[str, Path]) -> None:
    assert top_folders(wheels["kvpulse"]) == {"kvpulse"}

    metadata = wheel_metadata(wheels["kvpulse"])
    required = [line for line in metadata if line.startswith("Requires-Dist")]
    assert required == ["Requires-Dist: numpy>=1.26"]


@pytest.mark.slow
def test_the_app_wheel_ships_no_kvpulse_file_and_asks_for_this_very_version(
    wheels: dict[str, Path],
) -> None:
    assert top_folders(wheels["kvpulse-app"]) == APP_FOLDERS

    assert "Requires-Dist: kvpulse==0.1.0+src" in wheel_metadata(wheels["kvpulse-app"])


def wheel_metadata(wheel: Path) -> list[str]:
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith("METADATA"))
    return archive.read(name).decode().splitlines()


@pytest.mark.slow
def test_kvpulse_still_imports_and_runs_after_the_app_is_uninstalled(
    wheels: dict[str, Path], bare_python: Path
) -> None:
    pip(bare_python, "install", "--no-deps", "--no-index", *map(str, wheels.values()))
    pip(bare_python, "uninstall", "--yes", "kvpulse-app")

    imported = run(bare_python, "-c", "import kvpulse, kvpulse.reader; print(kvpulse.__file__)")
    helped = run(bare_python, "-m", "kvpulse", "--help")
    refused = run(bare_python, "-m", "kvpulse", "agent")

    assert str(bare_python.parents[1]) in imported.stdout
    assert helped.returncode == 0
    assert refused.returncode == 3
    assert "make setup" in refused.stderr
    assert "Traceback" not in refused.stderr


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments], cwd="/", capture_output=True, text=True, check=False
    )


IMPORT_ALL_WITHOUT_TORCH = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Refuse())
names = []
for package in ("kvpulse", "agent", "grafana", "dashboard"):
    root = importlib.import_module(package)
    names += [module.name for module in pkgutil.walk_packages(root.__path__, package + ".")]
for name in names:
    if name.split(".")[-1] not in ("__main__", "app") and "dashboard.pages" not in name:
        importlib.import_module(name)
print(len(names))
"""


def test_the_agent_grafana_and_dashboard_code_imports_with_torch_blocked() -> None:
    done = run(Path(sys.executable), "-W", "ignore", "-c", IMPORT_ALL_WITHOUT_TORCH)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 20
