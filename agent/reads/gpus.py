"""The history of the GPUs: per GPU and minute, of every machine whose agent writes this store."""

import json
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, text

from agent.gpu_minutes import DRIVER
from agent.gpus import GpuFigure
from agent.reads.models import Float64Array, Int64Array
from agent.reads.tiers import Window

FIGURES = tuple(figure.value for figure in GpuFigure)


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """One GPU over a window; NaN where a figure was not measured.

    Attributes:
        host: The machine whose agent looked.
        gpu: Its index there, such as "0"; a MIG instance is "0/1".
        t_ns: When each minute began. Minutes in which nobody looked are not among them.
        values: By `GpuFigure`: memory at its most, utilisation and power as means.
        missing: Why a figure is missing in the newest minute.
    """

    host: str
    gpu: str
    name: str | None
    t_ns: Int64Array
    values: dict[str, Float64Array]
    missing: dict[str, str]


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """All GPUs over a window, and the machines whose driver could not be asked when last tried."""

    series: list[GpuSeries]
    problems: dict[str, str]  # by host


def read_gpus(connection: Connection, window: Window) -> GpuHistory:
    """Return the GPUs' minutes that begin in a window."""
    query = text(
        "SELECT * FROM gpu_samples WHERE gpu<>:driver AND at_ns>=:start AND at_ns<:end"
        " ORDER BY host, gpu, at_ns"
    )
    bind = {"driver": DRIVER, "start": window.start_ns, "end": window.end_ns}
    found: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in connection.execute(query, bind).mappings():
        found.setdefault((row["host"], row["gpu"]), []).append(dict(row))
    return GpuHistory([_series(rows) for rows in found.values()], _problems(connection))


def _series(rows: list[dict[str, object]]) -> GpuSeries:
    last = rows[-1]
    return GpuSeries(
        host=str(last["host"]),
        gpu=str(last["gpu"]),
        name=None if last["name"] is None else str(last["name"]),
        t_ns=np.array([row["at_ns"] for row in rows], np.int64),
        values={name: np.array([row[name] for row in rows], np.float64) for name in FIGURES},
        missing=json.loads(str(last["missing"])),
    )


def _problems(connection: Connection) -> dict[str, str]:
    """Return why a driver gives nothing, of hosts of which nothing came since it was told."""
    query = text(
        "SELECT host, missing FROM gpu_samples AS trouble WHERE gpu=:driver AND NOT EXISTS"
        " (SELECT 1 FROM gpu_samples AS later WHERE later.host=trouble.host"
        " AND later.at_ns>trouble.at_ns) ORDER BY host"
    )
    rows = connection.execute(query, {"driver": DRIVER})
    return {row.host: json.loads(row.missing)["nvml"] for row in rows}
