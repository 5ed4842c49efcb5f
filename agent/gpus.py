"""What the GPUs of this machine were last seen doing; a figure that is missing says why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class GpuFigure(StrEnum):
    """What is asked of each GPU; the unit ends the name."""

    MEMORY_USED_BYTES = "memory_used_bytes"
    MEMORY_TOTAL_BYTES = "memory_total_bytes"
    UTILIZATION_RATIO = "utilization_ratio"
    POWER_WATTS = "power_watts"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG instance of it.

    Attributes:
        gpu: Its index, such as "0"; a MIG instance is "0/1".
        figures: What was measured.
        missing: Why what is not in `figures` could not be.
    """

    gpu: str
    name: str | None = None
    figures: Mapping[GpuFigure, float] = field(default_factory=dict)
    missing: Mapping[GpuFigure, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """All GPUs at one moment, or the reason why none can be asked."""

    read_at_ns: int  # wall clock
    gpus: tuple[Gpu, ...] = ()
    problem: str | None = None
