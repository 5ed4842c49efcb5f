"""What each GPU did in each minute, from looks that come every few seconds. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.gpus import Gpu, GpuFigure, GpuReading

MINUTE_NS: Final = 60_000_000_000
DRIVER: Final = ""  # stands for the driver as a whole, where no GPU could be asked
# Of several looks, memory in use counts at its most and what is drawn or done as the mean.
_MOST: Final = frozenset({GpuFigure.MEMORY_USED_BYTES, GpuFigure.MEMORY_TOTAL_BYTES})


@dataclass(frozen=True, slots=True)
class GpuMinute:
    """One GPU in one minute.

    Attributes:
        gpu: As in `Gpu`; `DRIVER` for a driver that could not be asked.
        at_ns: When the minute began, wall clock.
        num_looks: How many looks it is from.
        figures: Memory at its most, utilisation and power as means, over the looks that had them.
        missing: Why a figure was in no look; by figure, or under "nvml" for the driver.
    """

    gpu: str
    at_ns: int
    name: str | None
    num_looks: int
    figures: Mapping[GpuFigure, float]
    missing: Mapping[str, str]


@dataclass(slots=True)
class _Open:
    name: str | None = None
    num_looks: int = 0
    values: dict[GpuFigure, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, gpu: Gpu) -> None:
        self.name, self.num_looks = gpu.name or self.name, self.num_looks + 1
        for figure, value in gpu.figures.items():
            self.values.setdefault(figure, []).append(value)
        self.missing.update((figure.value, why) for figure, why in gpu.missing.items())

    def closed(self, gpu: str, at_ns: int) -> GpuMinute:
        figures = {
            figure: max(values) if figure in _MOST else sum(values) / len(values)
            for figure, values in self.values.items()
        }
        missing = {name: why for name, why in self.missing.items() if name not in figures}
        return GpuMinute(gpu, at_ns, self.name, self.num_looks, figures, missing)


class GpuMinutes:
    """Collects looks; gives a minute when the next one begins.

    A driver that cannot be asked is told once, and again when the reason changes: a machine without
    a GPU does not fill its store with that.
    """

    def __init__(self) -> None:
        self._at_ns: int | None = None
        self._open: dict[str, _Open] = {}
        self._problem: str | None = None

    def add(self, reading: GpuReading) -> list[GpuMinute]:
        """Take in a look; return the minutes that are over by it, and a new trouble at once."""
        at_ns = reading.read_at_ns // MINUTE_NS * MINUTE_NS
        over = [] if at_ns == self._at_ns else self.take()
        self._at_ns = at_ns
        for gpu in reading.gpus:
            self._open.setdefault(gpu.gpu, _Open()).add(gpu)
        if reading.problem != self._problem and reading.problem is not None:
            missing = {"nvml": reading.problem}
            over.append(GpuMinute(DRIVER, reading.read_at_ns, None, 1, {}, missing))
        self._problem = reading.problem
        return over

    def take(self) -> list[GpuMinute]:
        """Return what the open minute holds so far, and begin anew."""
        at_ns = self._at_ns or 0
        over = [each.closed(gpu, at_ns) for gpu, each in self._open.items()]
        self._open = {}
        return over
