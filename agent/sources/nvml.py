"""Ask NVIDIA's driver about its GPUs, expecting it to be absent, partial or failing.

Every call stands alone: what one of them cannot say takes nothing from the others. A driver that
went away is looked for again. Nothing here raises, and a call may hang: see `agent/periodic.py`.
"""

import importlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from agent.gpus import Gpu, GpuFigure, GpuReading
from kvpulse.plain_text import plain_text

MOST_GPUS: Final = 64
MILLIWATTS: Final = 1000
PERCENT: Final = 100
NOT_AVAILABLE: Final = (2**32 - 1, 2**64 - 1)  # NVML's marks for a number that it does not have
MOST_BYTES: Final = 2.0**50

Handle = Any  # opaque; NVML's module has no types


class NvmlSource:
    """One connection to NVML, made on first use and made anew after it broke."""

    def __init__(self, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._wall_ns = wall_ns
        self._nvml: Any = None

    def read(self) -> GpuReading:
        """Ask every GPU for every figure."""
        try:
            nvml = self._nvml or _connect()
            self._nvml = nvml
            num_gpus = int(nvml.nvmlDeviceGetCount())
        except Exception as error:  # noqa: BLE001 - a foreign driver must never stop the agent
            self.close()
            return GpuReading(self._wall_ns(), problem=_reason(error))
        found = [gpu for index in range(min(num_gpus, MOST_GPUS)) for gpu in _gpus(nvml, index)]
        return GpuReading(self._wall_ns(), tuple(found))

    def close(self) -> None:
        """Let go of NVML; the next `read` begins anew."""
        nvml, self._nvml = self._nvml, None
        if nvml is None:
            return
        try:
            nvml.nvmlShutdown()
        except Exception:  # noqa: BLE001 - it is being given up anyway
            return


def _connect() -> Any:
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml


def _gpus(nvml: Any, index: int) -> Iterator[Gpu]:
    """Give a GPU and its MIG instances."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:  # noqa: BLE001 - a lost GPU takes nothing from the others
        yield Gpu(str(index), missing=dict.fromkeys(GpuFigure, _reason(error)))
        return
    yield _gpu(nvml, handle, str(index))
    for number, instance in _mig_instances(nvml, handle):
        yield _gpu(nvml, instance, f"{index}/{number}")


def _mig_instances(nvml: Any, handle: Handle) -> Iterator[tuple[int, Handle]]:
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        most = int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except Exception:  # noqa: BLE001 - most GPUs and old drivers know no MIG
        return
    for number in range(min(most, MOST_GPUS)):
        try:
            yield number, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except Exception:  # noqa: BLE001 - a place that holds no instance
            continue


def _gpu(nvml: Any, handle: Handle, gpu: str) -> Gpu:
    figures: dict[GpuFigure, float] = {}
    missing: dict[GpuFigure, str] = {}
    for figure, (ask, most) in QUESTIONS.items():
        try:
            figures[figure] = _checked(ask(nvml, handle), most)
        except Exception as error:  # noqa: BLE001 - what one call cannot say, others may
            missing[figure] = _reason(error)
    return Gpu(gpu, _name(nvml, handle), figures, missing)


def _name(nvml: Any, handle: Handle) -> str | None:
    try:
        said = nvml.nvmlDeviceGetName(handle)
    except Exception:  # noqa: BLE001 - a name is for people
        return None
    return plain_text(said.decode("ascii", "replace") if isinstance(said, bytes) else str(said))


def _used(nvml: Any, handle: Handle) -> float:
    return _number(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def _total(nvml: Any, handle: Handle) -> float:
    total = _number(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    if not total:
        raise ValueError("NVML stated a memory of 0 bytes")
    return total


def _utilization(nvml: Any, handle: Handle) -> float:
    return _number(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / PERCENT


def _power(nvml: Any, handle: Handle) -> float:
    return _number(nvml.nvmlDeviceGetPowerUsage(handle)) / MILLIWATTS


def _number(said: object) -> float:
    if said in NOT_AVAILABLE or not isinstance(said, int | float):
        raise ValueError("NVML has no such number")
    return float(said)


def _checked(value: float, most: float) -> float:
    if not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"NVML stated {value:g}, which cannot be")
    return value


QUESTIONS: Final[dict[GpuFigure, tuple[Callable[[Any, Handle], float], float]]] = {
    GpuFigure.MEMORY_USED_BYTES: (_used, MOST_BYTES),
    GpuFigure.MEMORY_TOTAL_BYTES: (_total, MOST_BYTES),
    GpuFigure.UTILIZATION_RATIO: (_utilization, 1.0),
    GpuFigure.POWER_WATTS: (_power, 100_000.0),
}


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "the Python module pynvml is not installed (package nvidia-ml-py)"
    if isinstance(error, AttributeError):
        return "this version of pynvml has no such function"
    return plain_text(str(error) or type(error).__name__)
