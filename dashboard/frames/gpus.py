"""The machines' GPUs: a row each with their newest minute, curves of what they did, and reasons."""

from dataclasses import dataclass

from agent.gpus import GpuFigure
from agent.reads.gpus import GpuHistory, GpuSeries
from agent.reads.models import Float64Array
from dashboard.formats import date_and_clock, num_bytes, ratio, words
from dashboard.frames.series import Times, as_times, with_breaks

MINUTE_SECONDS = 60
NAMES = {
    GpuFigure.MEMORY_USED_BYTES.value: "memory in use",
    GpuFigure.MEMORY_TOTAL_BYTES.value: "memory",
    GpuFigure.UTILIZATION_RATIO.value: "utilisation",
    GpuFigure.POWER_WATTS.value: "power",
}


@dataclass(frozen=True, slots=True)
class GpuCurves:
    """One GPU over time; ratios from 0 to 1, NaN where nobody measured."""

    label: str
    times: Times
    utilization: Float64Array
    memory: Float64Array


def gpus_table(history: GpuHistory) -> dict[str, list[str | None]]:
    """Return the newest minute of each GPU; a missing figure is an empty cell with its reason."""
    last = history.series
    return {
        "Machine": [gpu.host for gpu in last],
        "GPU": [gpu.gpu for gpu in last],
        "Utilisation": [ratio_of(gpu) for gpu in last],
        "Memory in use": [bytes_of(gpu, GpuFigure.MEMORY_USED_BYTES) for gpu in last],
        "Memory": [bytes_of(gpu, GpuFigure.MEMORY_TOTAL_BYTES) for gpu in last],
        "Power": [watts_of(gpu) for gpu in last],
        "Name": [gpu.name for gpu in last],
        "Minute": [date_and_clock(int(gpu.t_ns[-1])) for gpu in last],
        "Not available": [reasons(gpu) for gpu in last],
    }


def bytes_of(gpu: GpuSeries, figure: GpuFigure) -> str | None:
    """Return a memory figure of the newest minute."""
    value = newest(gpu, figure)
    return None if value is None else num_bytes(value)


def ratio_of(gpu: GpuSeries) -> str | None:
    """Return the mean utilisation of the newest minute."""
    value = newest(gpu, GpuFigure.UTILIZATION_RATIO)
    return None if value is None else ratio(value)


def watts_of(gpu: GpuSeries) -> str | None:
    """Return the mean power of the newest minute."""
    value = newest(gpu, GpuFigure.POWER_WATTS)
    return None if value is None else f"{value:.0f} W"


def newest(gpu: GpuSeries, figure: GpuFigure) -> float | None:
    """Return a figure of the newest minute; None where it was not measured."""
    value = float(gpu.values[figure.value][-1])
    return None if value != value else value


def reasons(gpu: GpuSeries) -> str | None:
    """Say why figures are missing in the newest minute."""
    return (
        "; ".join(f"{NAMES.get(name, words(name))}: {why}" for name, why in gpu.missing.items())
        or None
    )


def absent_words(history: GpuHistory) -> str:
    """Say why there is no GPU to show."""
    if not history.problems:
        return "Not available: no agent has looked at a GPU in this window."
    told = "; ".join(f"{host}: {why}" for host, why in history.problems.items())
    return f"Not available: {told}."


def gpu_curves(history: GpuHistory) -> list[GpuCurves]:
    """Return how busy and how full each GPU was; the machine is named where there are several."""
    several = len({gpu.host for gpu in history.series}) > 1
    return [_curves(gpu, f"{gpu.host} " if several else "") for gpu in history.series]


def _curves(gpu: GpuSeries, machine: str) -> GpuCurves:
    used, total = (
        gpu.values[figure.value]
        for figure in (GpuFigure.MEMORY_USED_BYTES, GpuFigure.MEMORY_TOTAL_BYTES)
    )
    curves = {"busy": gpu.values[GpuFigure.UTILIZATION_RATIO.value], "full": used / total}
    t_ns, whole = with_breaks(gpu.t_ns, curves, MINUTE_SECONDS)
    label = f"{machine}GPU {gpu.gpu}"
    return GpuCurves(label, as_times(t_ns), whole["busy"], whole["full"])
