"""The set-up behind `make demo` and `make test`: what it decides and what it says."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def planned(*names: str) -> list[dict[str, object]]:
    return [
        {"metadata": {"name": name}, "download_info": {"url": "http://127.0.0.1:1/x"}}
        for name in names
    ]


def test_a_plan_without_cuda_packages_is_a_cpu_build(bootstrap: ModuleType) -> None:
    assert bootstrap.is_cpu_build(planned("torch", "sympy", "networkx"))
    assert not bootstrap.is_cpu_build(planned("torch", "nvidia-cublas"))
    assert not bootstrap.is_cpu_build(planned("torch", "cuda-bindings"))


def test_a_cuda_build_without_a_driver_is_left_out_and_the_way_on_is_told(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "works", lambda python, statement: False)
    monkeypatch.setattr(bootstrap, "has_nvidia_driver", lambda: False)
    monkeypatch.setattr(bootstrap, "torch_plan", lambda: planned("torch", "nvidia-cublas"))
    monkeypatch.setattr(bootstrap, "size_bytes", lambda plan: 2_900_000_000)

    assert bootstrap.want_torch() is False

    told = capsys.readouterr().out
    assert "2.9 GB" in told
    assert "TORCH_INDEX" in told
    assert "simulated" in told


def test_a_cuda_build_is_taken_where_a_driver_is_present(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "works", lambda python, statement: False)
    monkeypatch.setattr(bootstrap, "has_nvidia_driver", lambda: True)
    monkeypatch.setattr(bootstrap, "torch_plan", lambda: planned("torch", "nvidia-cublas"))

    assert bootstrap.want_torch() is True


def test_an_index_that_tells_no_size_counts_as_nothing(bootstrap: ModuleType) -> None:
    assert bootstrap.size_bytes(planned("torch")) == 0


def test_an_old_python_is_refused_with_the_way_on(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "OLDEST_PYTHON", (99, 0))

    with pytest.raises(bootstrap.SetupError, match=r"PYTHON=python3\.11"):
        bootstrap.make_venv()


def test_a_missing_venv_module_is_named_with_its_package(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap, "VENV_PYTHON", tmp_path / "no-python")
    monkeypatch.setitem(sys.modules, "ensurepip", None)

    with pytest.raises(bootstrap.SetupError, match="apt-get install python3-venv"):
        bootstrap.make_venv()


def test_a_missing_compiler_is_named_with_its_package(bootstrap: ModuleType) -> None:
    assert "build-essential" in bootstrap.cure_for("error: command 'gcc' failed: No such file")
    assert "python3-dev" in bootstrap.cure_for("fatal error: Python.h: No such file or directory")


def test_the_demo_installs_no_test_tools(bootstrap: ModuleType) -> None:
    assert "dev" not in bootstrap.EXTRAS["demo"]
    assert "dev" not in bootstrap.EXTRAS["simulated"]
    assert "engine" not in bootstrap.EXTRAS["simulated"]


def test_a_changed_requirement_makes_the_next_run_install_again(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = bootstrap.fingerprint("demo", ["engine"])
    other = tmp_path / "constraints.txt"
    other.write_text("torch==9\n")
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", other)

    assert bootstrap.fingerprint("demo", ["engine"]) != before
