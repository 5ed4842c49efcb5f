"""The only writing side of the store: one transaction per commit, data and position together.

Exactly once follows from one rule: a commit moves the stream's position by compare-and-set and
stores what was read up to it in the same transaction. A killed agent begins again at the stored
position. A second agent on the same stream is refused by the lease; one that lost its lease
unnoticed finds that out in its next commit, which fails as a whole. Where a connection is cut while
a commit is under way, nobody hears whether it was stored: its stamp tells the next attempt.
"""

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from agent.chunks.merge import NO_CHUNKS, plan_merge
from agent.errors import StoreConflict, StoreUnwritable
from agent.ledger.delta import LedgerDelta, RunShape
from agent.reads.models import RunState
from agent.rollups.repeats import TierEnd, plan_repeats
from agent.scraped.rows import Interval
from agent.store.connection import (
    StoreAddress,
    open_for_writing,
    parse_address,
    why_unwritable,
)
from agent.store.copy import row_writer
from agent.store.delta import DeltaRows
from agent.store.holder import LeaseWatch, this_agent
from agent.store.leases import Leases
from agent.store.open_intervals import read_open_intervals
from agent.store.partitions import OnePiece, Partitions, partitions_of
from agent.store.resume import StoredRun, load_run
from agent.store.revision import upgrade
from agent.store.rows import COUNTS
from agent.store.run_days import RunDays
from agent.store.statements import Statements, make_statements
from agent.store.stream_id import Progress, StreamId
from kvpulse.stream_values import Position


class Store:
    """One open store; hands out a `RunWriter` per stream. For one thread."""

    def __init__(
        self,
        engine: Engine,
        address: StoreAddress,
        seconds: Callable[[], float],
        wall_ns: Callable[[], int],
    ) -> None:
        self.address = address
        statements = make_statements(engine.dialect.name)
        self.leases = Leases(this_agent(), LeaseWatch(seconds), statements, wall_ns)
        self._engine = engine
        self._writing = Writing(
            self._transaction,
            statements,
            DeltaRows(statements, row_writer(engine, statements)),
            self.leases,
            (Partitions if engine.dialect.name == "postgresql" else OnePiece)(self._transaction),
            seconds,
        )

    @classmethod
    def open(
        cls,
        where: str,
        *,
        seconds: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> Self:
        """Open or create a store and bring its schema up to date.

        Args:
            where: The path of an SQLite file or an SQLAlchemy URL.
            seconds: A monotonic clock; it tells how long another agent has been silent.
            wall_ns: The wall clock; it tells readers when this agent was alive last.

        Raises:
            ConfigError, StoreUnwritable, StoreTooNew: It cannot be used; the text says why.
        """
        address = parse_address(where)
        engine = open_for_writing(address)
        try:
            upgrade(engine, address)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, address, seconds, wall_ns)

    def writer(self, stream: StreamId) -> "RunWriter":
        """Take a stream's lease; return its writer, at the position that is stored for it.

        Raises:
            StreamHeld: Another agent writes it.
        """
        with self._transaction() as connection:
            self.leases.take(connection, stream)
            # Only now: what its former holder had under way is stored, or never will be.
            run = load_run(connection, stream.engine, stream.run_id)
            if run is not None and run.state is not RunState.LIVE:
                self.leases.give_back(connection, stream)
        return RunWriter(self._writing, stream, run)

    def renew(self, streams: Iterable[StreamId]) -> None:
        """Keep the leases of streams that may have nothing to store for a while."""
        with self._transaction() as connection:
            self.leases.renew(connection, streams)

    def open_intervals(self, run_key: int, at_ns: int) -> dict[int, Interval]:
        """Return the stored interval of each tier around a moment, to go on with."""
        with self._transaction() as connection:
            return read_open_intervals(connection, run_key, at_ns)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except (DBAPIError, sqlite3.Error) as error:
            why = why_unwritable(self.address, error)
            raise StoreUnwritable(self.address.label, why) from error


@dataclass(frozen=True, slots=True)
class Writing:
    """How the writers of one store write."""

    transaction: Callable[[], AbstractContextManager[Connection]]
    statements: Statements
    rows: DeltaRows
    leases: Leases
    partitions: Partitions
    seconds: Callable[[], float]


class RunWriter:
    """Writes one stream's run. Knows the stored position; every commit moves it or fails."""

    def __init__(self, writing: Writing, stream: StreamId, run: StoredRun | None) -> None:
        self.stream = stream
        self.stored = run
        self._stamp: int | None = None  # of an attempt of which nobody knows how it ended
        self._transaction = writing.transaction
        self._statements = writing.statements
        self._rows = writing.rows
        self._leases = writing.leases
        self._partitions = writing.partitions
        self._seconds = writing.seconds
        self._days = RunDays(str(stream), writing.seconds())
        self._run_key = run.run_key if run else None
        self._position = run.position if run else None
        self._small_chunks = NO_CHUNKS
        self._tier_ends: Mapping[int, TierEnd] = {}

    @property
    def run_key(self) -> int | None:
        """The run's key in the store; None before the first commit."""
        return self._run_key

    @property
    def position(self) -> Position | None:
        """The stored position; None before the first commit."""
        return self._position

    def commit(self, delta: LedgerDelta, shape: RunShape, progress: Progress) -> int:
        """Store a delta and move the position, both or neither; return the run's key.

        Raises:
            StoreConflict: Another agent writes the stream; nothing was stored.
            DaysRefused: On Postgres: its times are none of a clock; nothing was stored.
            StoreUnwritable: The database refused, or was not heard of again. The same delta is to
                be tried again; if it was stored after all, it is not stored twice.
        """
        plan = plan_merge(self._small_chunks, delta)
        repeats = plan_repeats(self._tier_ends, delta.rollups)
        wanted = partitions_of(delta, plan, repeats)
        if self._partitions.are_made:
            self._days.allow(wanted, self._seconds())
            self._partitions.ensure(wanted)
        tried, self._stamp = self._stamp, self._stamp or secrets.randbits(62)
        try:
            with self._transaction() as connection:
                self._leases.keep(connection, self.stream)
                key = self._stored_under(connection, tried) if tried else None
                if key is None:
                    key = self._move(connection, delta, shape, progress)
                    self._rows.write(connection, key, delta)
                    self._rows.write_rollups(connection, key, delta.wall_offset_ns, repeats)
                    self._rows.merge(connection, key, delta.wall_offset_ns, plan)
                    self._rows.touch(connection, key, delta, progress, plan)
        except IntegrityError as error:
            if self._partitions.is_missing(error):
                return self.commit(delta, shape, progress)
            raise StoreConflict(str(self.stream), self._expected()) from error
        self._stamp = None
        self._run_key = key
        self._position = progress.position
        self._small_chunks = plan.waiting
        self._tier_ends = repeats.ends
        return key

    def end(self, state: RunState) -> None:
        """Mark the run as ended; sequences still live in it have an unknown end."""
        if self._run_key is None:
            return
        values = {"key": self._run_key, "state": state.value}
        with self._transaction() as connection:
            if not self._has_ended(connection, state):
                self._leases.keep(connection, self.stream)
            connection.execute(
                text(
                    "UPDATE runs SET state=:state, ended_at_ns=COALESCE(last_event_at_ns,"
                    " started_at_ns) WHERE run_key=:key"
                ),
                values,
            )
            connection.execute(
                text(
                    "UPDATE requests SET state='unknown' WHERE run_key=:key"
                    " AND ended_at_ns IS NULL AND state<>'unknown'"
                ),
                {"key": self._run_key},
            )
            self._leases.give_back(connection, self.stream)

    def release(self) -> None:
        """Let another agent have the stream at once."""
        with self._transaction() as connection:
            self._leases.give_back(connection, self.stream)

    def _has_ended(self, connection: Connection, state: RunState) -> bool:
        query = text("SELECT state FROM runs WHERE run_key=:key")
        return bool(connection.execute(query, {"key": self._run_key}).scalar() == state.value)

    def _stored_under(self, connection: Connection, stamp: int) -> int | None:
        query = text(
            "SELECT runs.run_key FROM runs JOIN positions ON positions.run_key=runs.run_key"
            " WHERE engine=:engine AND run_id=:run_id AND stamp=:stamp"
        )
        names = {"engine": self.stream.engine, "run_id": self.stream.run_id, "stamp": stamp}
        found = connection.execute(query, names).scalar()
        return None if found is None else int(found)

    def _expected(self) -> int:
        return self._position.seq if self._position else 0

    def _move(
        self, connection: Connection, delta: LedgerDelta, shape: RunShape, progress: Progress
    ) -> int:
        position = progress.position
        here = (
            *(position.segment, position.record, position.seq),
            *(COUNTS.pack(*position.counts), COUNTS.pack(*position.lost)),
            *(progress.behind_records, delta.unknown, self._stamp),
        )
        before = self._position
        if self._run_key is None:
            key = self._add_run(connection, delta, shape)
            connection.exec_driver_sql(self._statements.insert["positions"], (key, *here))
            return key
        assert before is not None
        where = (self._run_key, before.seq, before.segment, before.record)
        moved = connection.exec_driver_sql(self._statements.move_position, (*here, *where))
        if moved.rowcount != 1:
            raise StoreConflict(str(self.stream), before.seq)
        return self._run_key

    def _add_run(self, connection: Connection, delta: LedgerDelta, shape: RunShape) -> int:
        started_ns = min((chunk.t0_ns for chunk in delta.chunks), default=delta.t_ns)
        values = {
            "engine": self.stream.engine,
            "run_id": self.stream.run_id,
            "state": RunState.LIVE.value,
            "fingerprint": "{}",
            "wall_offset_ns": delta.wall_offset_ns,
            "total_blocks": shape.total_blocks,
            "host_blocks": shape.host_blocks,
            "block_size": shape.block_size,
            "started_at_ns": started_ns + delta.wall_offset_ns,
        }
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        insert = text(f"INSERT INTO runs ({names}) VALUES ({marks}) RETURNING run_key")
        return int(connection.execute(insert, values).scalar_one())
