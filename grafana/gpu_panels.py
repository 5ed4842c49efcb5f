"""Charts of the machines' GPUs, which are of no engine: the choice of engines changes nothing."""

from typing import Final

from grafana_foundation_sdk.builders import timeseries

from agent.metrics import gpu as metrics
from grafana import queries
from grafana.panel_defaults import chart, query

NO_GPU: Final = "No figure from NVML: the agent's /api/status says why"
_EACH: Final = "instance, gpu"  # two machines have a GPU 0 each


def gpu_memory() -> timeseries.Panel:
    """Draw which share of each GPU's memory is in use."""
    used = queries.largest(metrics.GPU_MEMORY_USED, _EACH)
    return _of_each_gpu(
        "GPU memory in use",
        queries.ratio(used, queries.largest(metrics.GPU_MEMORY_TOTAL, _EACH)),
        description="Memory in use by whichever process out of all; flat is good, since an engine "
        "takes its pool once, and a step up is somebody else on the card.",
        unit="percentunit",
    ).max(1)


def gpu_utilization() -> timeseries.Panel:
    """Draw the share of time in which each GPU ran any kernel."""
    return _of_each_gpu(
        "GPU utilisation",
        queries.largest(metrics.GPU_UTILIZATION, _EACH),
        description="Share of time in which any kernel ran, however small; near zero while "
        "sequences wait means that the engine or its host stands still.",
        unit="percentunit",
    ).max(1)


def gpu_power() -> timeseries.Panel:
    """Draw what each GPU draws."""
    return _of_each_gpu(
        "GPU power",
        queries.largest(metrics.GPU_POWER, _EACH),
        description="What each card draws; a fall under the same load is a card that was "
        "throttled or capped, and steps will take longer.",
        unit="watt",
    )


def _of_each_gpu(title: str, expr: str, *, description: str, unit: str) -> timeseries.Panel:
    return (
        chart(title, description=description, unit=unit)
        .no_value(NO_GPU)
        .fill_opacity(0)
        .with_target(query(expr, "GPU {{gpu}} of {{instance}}"))
        .span(8)
    )
