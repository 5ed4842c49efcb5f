"""Saved baselines as they are stored."""

import json
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Row, text

from agent.baselines.codec import decode_series
from agent.baselines.errors import BaselineDamaged, BaselineNotFound
from agent.baselines.side import Completeness, Side

HEAD: Final = (
    "name, engine, start_at_ns, end_at_ns, saved_at_ns, tier_seconds, fingerprint,"
    " completeness, figures"
)


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """What is known of a baseline without unpacking its series.

    Attributes:
        figures: The judged metrics as they were when it was saved; None: not measured.
    """

    name: str
    engine: str
    start_at_ns: int
    end_at_ns: int
    saved_at_ns: int
    tier_seconds: int
    completeness: Completeness
    fingerprint: dict[str, str | int | float | bool | None]
    figures: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class StoredBaseline:
    """A baseline with its series."""

    row: BaselineRow
    side: Side


def read_baselines(connection: Connection) -> list[BaselineRow]:
    """Return all baselines, the newest first."""
    query = text(f"SELECT {HEAD} FROM baselines ORDER BY saved_at_ns DESC, baseline_key DESC")
    return [_row(row) for row in connection.execute(query)]


def read_baseline(connection: Connection, name: str) -> StoredBaseline:
    """Return one baseline.

    Raises:
        BaselineNotFound: Nothing is saved under the name.
        BaselineDamaged: Its series cannot be read.
    """
    query = text(f"SELECT {HEAD}, series FROM baselines WHERE name=:name")
    found = connection.execute(query, {"name": name}).first()
    if found is None:
        raise BaselineNotFound(name)
    row = _row(found)
    series = decode_series(bytes(found.series))
    return StoredBaseline(row, Side(name, row.engine, series, row.completeness, row.fingerprint))


def _row(found: Row[tuple[object, ...]]) -> BaselineRow:
    try:
        completeness = Completeness(**json.loads(found.completeness))
        fingerprint, figures = json.loads(found.fingerprint), json.loads(found.figures)
    except (TypeError, ValueError) as error:
        raise BaselineDamaged(f"baseline {found.name!r} cannot be read: {error}") from error
    return BaselineRow(
        name=found.name,
        engine=found.engine,
        start_at_ns=found.start_at_ns,
        end_at_ns=found.end_at_ns,
        saved_at_ns=found.saved_at_ns,
        tier_seconds=found.tier_seconds,
        completeness=completeness,
        fingerprint=fingerprint,
        figures=figures,
    )
