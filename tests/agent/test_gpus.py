"""NVML absent, failing, partial, under MIG or hanging: missing is said with its reason, never 0."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import generate_latest

from agent.config import load_config
from agent.errors import ConfigError
from agent.gpu_watch import GpuWatch
from agent.gpus import Gpu, GpuFigure, GpuReading
from agent.http.live_status import status_document
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.metrics.exporter import exporter_registry
from agent.metrics.gpu import GPU_TABLE
from agent.metrics.page import page
from agent.periodic import Periodic
from agent.sources.nvml import NvmlSource
from tests.agent.factories_live import NOW_NS, SECOND
from tests.agent.factories_store import empty_store
from tests.waiting import wait_until

FAKE = Path(__file__).parent / "fake_nvml"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The fake in place of NVIDIA's module, with two healthy GPUs."""
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    import pynvml

    assert Path(pynvml.__file__).parent == FAKE
    pynvml.reset()
    yield pynvml
    sys.modules.pop("pynvml", None)


def read() -> GpuReading:
    return NvmlSource(lambda: NOW_NS).read()


def metrics_of(view: LiveView, now_ns: int = NOW_NS) -> list[str]:
    text = generate_latest(exporter_registry(view, lambda: now_ns)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def shown(reading: GpuReading) -> LiveView:
    view = LiveView(NOW_NS)
    view.note_gpus(reading)
    return view


def test_memory_utilisation_and_power_of_each_gpu(nvml: Any) -> None:
    assert metrics_of(shown(read())) == [
        "kvpulse_nvml_up 1.0",
        'kvpulse_gpu_memory_used_bytes{gpu="0"} 30000.0',
        'kvpulse_gpu_memory_used_bytes{gpu="1"} 30000.0',
        'kvpulse_gpu_memory_total_bytes{gpu="0"} 150000.0',
        'kvpulse_gpu_memory_total_bytes{gpu="1"} 150000.0',
        'kvpulse_gpu_utilization_ratio{gpu="0"} 0.87',
        'kvpulse_gpu_utilization_ratio{gpu="1"} 0.87',
        'kvpulse_gpu_power_watts{gpu="0"} 412.5',
        'kvpulse_gpu_power_watts{gpu="1"} 412.5',
    ]


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_an_absent_driver_is_not_available_with_the_reason(nvml: Any, call: str) -> None:
    nvml.SCRIPT[call] = nvml.NVMLError("NVML Shared Library Not Found")

    reading = read()
    document = status_document(shown(reading).snapshot(), NOW_NS)["gpus"]

    assert reading.problem == "NVML Shared Library Not Found"
    assert document == {
        "available": False,
        "reason": "NVML Shared Library Not Found",
        "age_seconds": 0.0,
        "gpus": [],
    }
    assert metrics_of(shown(reading)) == ["kvpulse_nvml_up 0.0"]


def test_a_module_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert read().problem == ("the Python module pynvml is not installed (package nvidia-ml-py)")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("not supported", "Not Supported"),
        ("absent", "this version of pynvml has no such function"),
        ("no number", "NVML has no such number"),
        ("mark", "NVML has no such number"),
        ("negative", "NVML stated -0.001, which cannot be"),
    ],
)
def test_a_figure_that_is_missing_is_absent_and_takes_no_other(
    nvml: Any, said: str, why: str
) -> None:
    nvml.SCRIPT["nvmlDeviceGetPowerUsage"] = {
        "not supported": nvml.NVMLError("Not Supported"),
        "absent": nvml.ABSENT,
        "no number": None,
        "mark": 2**32 - 1,
        "negative": -1,
    }[said]

    gpu, _ = read().gpus

    assert gpu.missing == {GpuFigure.POWER_WATTS: why}
    assert set(gpu.figures) == set(GpuFigure) - {GpuFigure.POWER_WATTS}
    document = status_document(shown(read()).snapshot(), NOW_NS)["gpus"]
    assert document["gpus"][0]["power_watts"] is None  # type: ignore[index]
    assert document["gpus"][0]["not_available"] == {"power_watts": why}  # type: ignore[index]


def test_a_memory_of_nothing_is_not_available(nvml: Any) -> None:
    nvml.SCRIPT["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=0, used=2**64 - 1)

    gpu, _ = read().gpus

    assert set(gpu.missing) == {GpuFigure.MEMORY_USED_BYTES, GpuFigure.MEMORY_TOTAL_BYTES}


def test_one_lost_gpu_takes_nothing_from_the_other(nvml: Any) -> None:
    lost = nvml.NVMLError("GPU is lost")
    nvml.SCRIPT["nvmlDeviceGetHandleByIndex"] = {0: lost, 1: "b"}

    first, second = read().gpus

    assert first == Gpu("0", missing=dict.fromkeys(GpuFigure, "GPU is lost"))
    assert set(second.figures) == set(GpuFigure)


def test_mig_instances_are_gpus_of_their_own(nvml: Any) -> None:
    refused = nvml.NVMLError("Not Supported")
    nvml.SCRIPT |= {
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetMigMode": (1, 1),
        "nvmlDeviceGetMaxMigDeviceCount": 3,
        "nvmlDeviceGetMigDeviceHandleByIndex": {0: "m0", 1: nvml.NVMLError("Not Found"), 2: "m2"},
        "nvmlDeviceGetUtilizationRates": refused,
        "nvmlDeviceGetPowerUsage": {"a": 300_000, "m0": refused, "m2": refused},
        "nvmlDeviceGetMemoryInfo": {
            "a": nvml.NVMLError("Insufficient Permissions"),
            "m0": SimpleNamespace(total=20_000, used=0),
            "m2": SimpleNamespace(total=40_000, used=7_000),
        },
    }

    assert metrics_of(shown(read())) == [
        "kvpulse_nvml_up 1.0",
        'kvpulse_gpu_memory_used_bytes{gpu="0/0"} 0.0',
        'kvpulse_gpu_memory_used_bytes{gpu="0/2"} 7000.0',
        'kvpulse_gpu_memory_total_bytes{gpu="0/0"} 20000.0',
        'kvpulse_gpu_memory_total_bytes{gpu="0/2"} 40000.0',
        'kvpulse_gpu_power_watts{gpu="0"} 300.0',
    ]


def test_a_driver_that_comes_back_is_asked_anew(nvml: Any) -> None:
    source = NvmlSource(lambda: NOW_NS)
    assert source.read().problem is None
    nvml.SCRIPT["nvmlDeviceGetCount"] = nvml.NVMLError("Driver Not Loaded")
    assert source.read().problem == "Driver Not Loaded"
    nvml.reset()

    assert len(source.read().gpus) == 2
    assert nvml.CALLS[0] == "nvmlInit"


@pytest.mark.parametrize("name", [b"NVIDIA \xff\x1b[31m", "NVIDIA \u2122\x1b[31m"])
def test_a_name_is_printable(nvml: Any, name: object) -> None:
    nvml.SCRIPT["nvmlDeviceGetName"] = name

    assert read().gpus[0].name == "NVIDIA ??[31m"


def test_each_cause_is_logged_once_an_hour(nvml: Any, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    nvml.SCRIPT["nvmlDeviceGetPowerUsage"] = nvml.NVMLError("Not Supported")
    limit = OncePerHour(lambda: now[0])
    watch = GpuWatch(NvmlSource(), LiveView(0), limit)

    with caplog.at_level(logging.INFO):
        for _ in range(2 * 720 + 1):
            watch.look()
            now[0] += 5

    line = "GPU power_watts is not available: Not Supported (GPU 0, 1)"
    assert [record.getMessage() for record in caplog.records] == [line] * 3


def test_a_driver_that_hangs_is_not_waited_for_and_no_news(nvml: Any) -> None:
    hangs = threading.Event()
    view = LiveView(NOW_NS)
    view.note_gpus(read())
    nvml.SCRIPT["nvmlDeviceGetCount"] = hangs.wait
    watch = GpuWatch(NvmlSource(), view, OncePerHour(time.monotonic))

    with Periodic("gpus", watch.look, pause_seconds=0.01):
        wait_until(lambda: "nvmlDeviceGetCount" in nvml.CALLS[-1:])
        began = time.monotonic()

    assert time.monotonic() - began < 3
    assert metrics_of(view, NOW_NS + 61 * SECOND) == ["kvpulse_nvml_up 0.0"]
    document = status_document(view.snapshot(), NOW_NS + 61 * SECOND)["gpus"]
    assert document["reason"] == "NVML has not answered for 61 s"  # type: ignore[index]
    hangs.set()


def test_without_a_look_there_is_no_metric(nvml: Any) -> None:
    assert metrics_of(LiveView(NOW_NS)) == []


def test_every_gpu_metric_is_on_the_page() -> None:
    assert all(f"| `{metric.name}` | gauge |" in page() for metric in GPU_TABLE)


def test_a_bad_choice_names_the_good_ones() -> None:
    with pytest.raises(ConfigError, match="KVPULSE_GPUS: found 'all'; accepted is one of auto, of"):
        load_config({}, {"HOME": "/x", "KVPULSE_GPUS": "all"})


def test_an_agent_without_a_driver_runs_and_says_so_once(tmp_path: Path) -> None:
    fails = json.dumps({"nvmlInit": "NVML Shared Library Not Found"})
    paths = os.pathsep.join([str(FAKE), str(ROOT)])
    environment = {"PYTHONPATH": paths, "KVPULSE_GPU_SECONDS": "0.01"}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "kvpulse", "agent", "--json", "--port", "0"),
            *("--journal", str(tmp_path / "journal"), "--store", empty_store(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, **environment, "FAKE_NVML": fails},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    why = "NVML Shared Library Not Found"
    wait_until(lambda: httpx.get(f"{url}/api/status").json()["gpus"]["reason"] == why)
    process.terminate()
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 0
    assert errors.count(f"GPU figures are not available: {why}") == 1
