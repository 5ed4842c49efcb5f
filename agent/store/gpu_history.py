"""The GPUs' history in the store: one row per GPU and minute, on connections of its own."""

import json
import logging
import socket
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from agent.errors import StoreError, StoreUnwritable
from agent.gpu_minutes import GpuMinute, GpuMinutes
from agent.gpus import GpuFigure, GpuReading
from agent.log_limit import OncePerHour
from agent.store.connection import StoreAddress, open_for_writing, why_unwritable
from agent.store.rows import Row
from agent.store.statements import make_statements
from kvpulse.plain_text import plain_text

LOGGER: Final = logging.getLogger(__name__)
KEPT_NS: Final = 30 * 86_400_000_000_000
NEWEST_NS: Final = 2 * 3_600_000_000_000  # kept whatever the budget
MOST_WAITING: Final = 4096  # rows kept while the database is away; then the oldest go


class GpuHistory:
    """Writes what looks at the GPUs found. Nothing here raises: a look must go on."""

    def __init__(
        self, address: StoreAddress, log_limit: OncePerHour, host: str | None = None
    ) -> None:
        self._address = address
        self._log_limit = log_limit
        self._host = plain_text(host or socket.gethostname())[:64]
        self._minutes = GpuMinutes()
        self._waiting: list[GpuMinute] = []

    def note(self, reading: GpuReading) -> None:
        """Take in a look; store the minutes that are over."""
        self._store(self._minutes.add(reading))

    def close(self) -> None:
        """Store what there is of the open minute."""
        self._store(self._minutes.take())

    def _store(self, minutes: list[GpuMinute]) -> None:
        self._waiting = [*self._waiting, *minutes][-MOST_WAITING:]
        if not minutes:
            return
        try:
            self._write(self._waiting)
        except StoreError as error:
            if self._log_limit.is_due(f"gpu history: {error}"):
                LOGGER.warning("the GPUs' history waits: %s", error)
            return
        self._waiting = []

    def _write(self, minutes: list[GpuMinute]) -> None:
        engine = open_for_writing(self._address)
        try:
            statement = make_statements(engine.dialect.name).replace["gpu_samples"]
            with engine.begin() as connection:
                rows = [_row(self._host, minute) for minute in minutes]
                connection.exec_driver_sql(statement, rows)
                newest = max(minute.at_ns for minute in minutes)
                delete_gpu_samples(connection, before_ns=newest - KEPT_NS)
        except DBAPIError as error:
            why = why_unwritable(self._address, error)
            raise StoreUnwritable(self._address.label, why) from error
        finally:
            engine.dispose()


def delete_gpu_samples(connection: Connection, *, before_ns: int) -> None:
    """Delete the minutes before a time."""
    connection.execute(text("DELETE FROM gpu_samples WHERE at_ns<:before"), {"before": before_ns})


def delete_oldest_gpu_samples(connection: Connection, number: int) -> int:
    """Delete about so many of the oldest rows, by whole minutes; return how many went.

    The newest hours stay, whatever is asked.
    """
    newest = connection.execute(text("SELECT MAX(at_ns) FROM gpu_samples")).scalar()
    if newest is None:
        return 0
    later = text("SELECT at_ns FROM gpu_samples ORDER BY at_ns LIMIT 1 OFFSET :number")
    reached = connection.execute(later, {"number": number - 1}).scalar()
    cut = newest - NEWEST_NS
    if reached is not None:
        cut = min(cut, reached + 1)
    delete = text("DELETE FROM gpu_samples WHERE at_ns<:cut")
    return connection.execute(delete, {"cut": cut}).rowcount


def _row(host: str, minute: GpuMinute) -> Row:
    figures = minute.figures
    used, total = (
        None if figure not in figures else int(figures[figure])
        for figure in (GpuFigure.MEMORY_USED_BYTES, GpuFigure.MEMORY_TOTAL_BYTES)
    )
    return (
        *(host, minute.gpu, minute.at_ns, minute.name, minute.num_looks, used, total),
        *(figures.get(GpuFigure.UTILIZATION_RATIO), figures.get(GpuFigure.POWER_WATTS)),
        json.dumps(dict(minute.missing)),
    )
