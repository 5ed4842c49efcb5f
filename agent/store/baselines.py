"""Write and delete saved baselines, on connections of their own beside the agent's commits."""

import json
from dataclasses import asdict
from typing import Final, Self

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from agent.baselines.codec import encode_series
from agent.baselines.errors import BaselineExists, BaselineNotFound, BaselineRefused
from agent.baselines.figures import judged_figures
from agent.baselines.side import Side
from agent.errors import StoreUnwritable
from agent.store.connection import StoreAddress, open_for_writing, why_unwritable

MOST_BASELINES: Final = 200  # one is about 0.1 MB; retention never takes them


class BaselineWriter:
    """Writes the baselines of one store; may be used from several threads."""

    def __init__(self, engine: Engine, address: StoreAddress) -> None:
        self._engine = engine
        self._address = address

    @classmethod
    def open(cls, address: StoreAddress) -> Self:
        """Open a store that exists and is up to date.

        Raises:
            StoreUnwritable: The database refused.
        """
        return cls(open_for_writing(address), address)

    def save(self, name: str, side: Side, *, saved_at_ns: int) -> None:
        """Save a side under a name.

        Raises:
            BaselineExists: The name is taken; nothing was changed.
            BaselineRefused: There are too many.
            StoreUnwritable: The database refused.
        """
        values = {
            "name": name,
            "engine": side.engine,
            "fingerprint": json.dumps(dict(side.fingerprint)),
            "start_at_ns": side.series.start_ns,
            "end_at_ns": side.series.end_ns,
            "saved_at_ns": saved_at_ns,
            "tier_seconds": side.series.tier_seconds,
            "traffic": json.dumps(asdict(side.traffic)),
            "completeness": json.dumps(asdict(side.completeness)),
            "figures": json.dumps(judged_figures(side.series)),
            "series": encode_series(side.series),
        }
        names = ", ".join(values)
        marks = ", ".join(f":{column}" for column in values)
        try:
            with self._engine.begin() as connection:
                taken = connection.execute(text("SELECT COUNT(*) FROM baselines")).scalar_one()
                if taken >= MOST_BASELINES:
                    raise BaselineRefused(
                        f"there are {taken} baselines, the most a store keeps: delete one first"
                    )
                connection.execute(
                    text(f"INSERT INTO baselines ({names}) VALUES ({marks})"), values
                )
        except IntegrityError as error:
            raise BaselineExists(name) from error
        except DBAPIError as error:
            raise self._unwritable(error) from error

    def delete(self, name: str) -> None:
        """Delete a baseline.

        Raises:
            BaselineNotFound: Nothing is saved under the name.
            StoreUnwritable: The database refused.
        """
        try:
            with self._engine.begin() as connection:
                query = text("DELETE FROM baselines WHERE name=:name")
                done = connection.execute(query, {"name": name})
        except DBAPIError as error:
            raise self._unwritable(error) from error
        if done.rowcount != 1:
            raise BaselineNotFound(name)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _unwritable(self, error: DBAPIError) -> StoreUnwritable:
        return StoreUnwritable(self._address.label, why_unwritable(self._address, error))
