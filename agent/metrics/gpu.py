"""Metrics of the machine's GPUs: they carry the label `gpu` and none of an engine."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agent.gpus import GpuFigure, GpuReading
from agent.live_view import LiveView
from agent.metrics.metric import Metric, Unit, gauge
from agent.rollups.rebucket import NS_PER_SECOND

STALE_AFTER_SECONDS: Final = 60.0  # a driver that hangs answers nothing; its last word is no news

NVML_UP: Final = gauge(
    "nvml_up",
    Unit.BOOLEAN,
    "1 while NVIDIA's driver answers, 0 when it is absent, failing or silent for a minute; "
    "/api/status says why. Absent with gpus = off.",
)
GPU_MEMORY_USED: Final = gauge(
    "gpu_memory_used_bytes",
    Unit.BYTES,
    "Memory in use on the GPU, by whichever process. Absent where NVML does not say.",
    "gpu",
)
GPU_MEMORY_TOTAL: Final = gauge(
    "gpu_memory_total_bytes",
    Unit.BYTES,
    "Memory of the GPU. A MIG instance is a GPU of its own, such as 0/1.",
    "gpu",
)
GPU_UTILIZATION: Final = gauge(
    "gpu_utilization_ratio",
    Unit.RATIO,
    "Share of NVML's last sample in which any kernel ran; it says nothing of how much of the GPU "
    "that kernel used. Absent where NVML does not say, as under MIG.",
    "gpu",
)
GPU_POWER: Final = gauge("gpu_power_watts", Unit.WATTS, "Power that the GPU draws now.", "gpu")

GPU_METRICS: Final[dict[GpuFigure, Metric]] = {
    GpuFigure.MEMORY_USED_BYTES: GPU_MEMORY_USED,
    GpuFigure.MEMORY_TOTAL_BYTES: GPU_MEMORY_TOTAL,
    GpuFigure.UTILIZATION_RATIO: GPU_UTILIZATION,
    GpuFigure.POWER_WATTS: GPU_POWER,
}
GPU_TABLE: Final[tuple[Metric, ...]] = (NVML_UP, *GPU_METRICS.values())


class GpuCollector(Collector):
    """Gives what the GPUs were last seen doing; nothing where nobody looks."""

    def __init__(self, view: LiveView, wall_clock: Callable[[], int]) -> None:
        self._view = view
        self._wall_clock = wall_clock

    def collect(self) -> Iterable[Family]:
        """Build fresh families; a figure that is missing gives no sample."""
        reading = self._view.snapshot().gpus
        if reading is None:
            return []
        up = GaugeMetricFamily(NVML_UP.name, NVML_UP.help)
        is_up = is_current(reading, self._wall_clock())
        up.add_metric((), float(is_up))
        return [up, *(self._figures(reading) if is_up else ())]

    def describe(self) -> Iterable[Family]:
        """Declare every family of the table, samples or not."""
        return [GaugeMetricFamily(each.name, each.help, labels=each.labels) for each in GPU_TABLE]

    def _figures(self, reading: GpuReading) -> Iterable[Family]:
        for figure, metric in GPU_METRICS.items():
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for gpu in reading.gpus:
                if figure in gpu.figures:
                    family.add_metric((gpu.gpu,), gpu.figures[figure])
            if family.samples:
                yield family


def is_current(reading: GpuReading, now_ns: int) -> bool:
    """Whether the driver answered, not long ago."""
    is_old = now_ns - reading.read_at_ns > STALE_AFTER_SECONDS * NS_PER_SECOND
    return reading.problem is None and not is_old
