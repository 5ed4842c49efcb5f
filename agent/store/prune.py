"""Delete the oldest data of a store, in small transactions that let the agent's commits between.

Detail goes by whole stretches, a snapshot with all chunks up to the next one: what is left can
always be rebuilt without a hole. Never touched: the newest snapshot of a run that may go on and the
chunks after it, from which an agent resumes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from agent.errors import StoreUnwritable
from agent.store.connection import (
    StoreAddress,
    open_for_reading,
    open_for_writing,
    why_unwritable,
)
from agent.store.detail_drop import (
    ALL_TIME,
    Needed,
    drop_days_of_chunks,
    drop_days_of_maps,
)
from agent.store.gpu_history import delete_oldest_gpu_samples
from agent.store.partition_drop import drop_intervals, whole_cut
from agent.store.pins import NO_PINS, held_pins
from agent.store.prune_rows import delete_intervals, delete_requests, oldest_row_ns
from agent.store.retention import (
    INTERVAL_BYTES,
    PINNED_RATIO,
    REQUEST_BYTES,
    TIER_OF,
    Held,
    finer_than,
    plan,
)
from agent.store.space import GPU_MINUTE_BYTES, PRUNE_LOCK, Space, give_back, measure
from agent.store.stretches import (
    DetailStretch,
    Mark,
    chunks_within,
    oldest_stretches,
)

MOST_ROUNDS: Final = 12
BITE_MAPS: Final = 32
NS: Final = 1_000_000_000
SLICE_INTERVALS: Final = 3_600  # rollup intervals deleted in one transaction, per run
KEPT_INTERVALS: Final = 120  # of each tier, whatever the budget


@dataclass(slots=True)
class Pruned:
    """What pruning came to."""

    budget_bytes: int
    before_bytes: int = 0
    after_bytes: int = 0
    deleted: dict[Held, int] = field(default_factory=dict)  # rows (chunks, intervals, sequences)
    pinned_bytes: int = 0
    is_ours: bool = True  # False: another process prunes this store just now

    @property
    def is_within(self) -> bool:
        """Whether the store fits into its budget now."""
        return self.after_bytes <= self.budget_bytes


class Pruner:
    """Brings one store under its budget. For one thread, on connections of its own."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._engine = open_for_writing(address)
        self._reads = open_for_reading(address)
        self._pins = NO_PINS  # as of the beginning of a pruning

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
        self._reads.dispose()

    def prune(self, budget_bytes: int) -> Pruned:
        """Delete the oldest data until the store fits into the budget, and give the room back.

        Raises:
            StoreUnwritable: The database refused; what was deleted by then stays deleted.
        """
        done = Pruned(budget_bytes)
        try:
            with self._alone() as is_ours:
                done.is_ours = is_ours
                if is_ours:
                    self._rounds(done)
        except DBAPIError as error:
            why = why_unwritable(self._address, error)
            raise StoreUnwritable(self._address.label, why) from error
        return done

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        if self._engine.dialect.name != "postgresql":
            yield True
            return
        with self._engine.connect() as connection:
            bind = {"lock": PRUNE_LOCK}
            got = bool(
                connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), bind).scalar()
            )
            connection.commit()
            try:
                yield got
            finally:
                if got:
                    connection.execute(text("SELECT pg_advisory_unlock(:lock)"), bind)

    def _rounds(self, done: Pruned) -> None:
        space = self._measure()
        done.before_bytes = done.after_bytes = space.used_bytes
        with self._reading() as connection:
            self._pins = held_pins(connection, int(done.budget_bytes * PINNED_RATIO))
        exhausted: set[Held] = set()  # they have nothing that may go
        for _ in range(MOST_ROUNDS):
            left = {kind: size for kind, size in space.weights.items() if kind not in exhausted}
            wanted = plan(left, space.used_bytes, done.budget_bytes)
            if not wanted:
                break
            for kind, num_bytes in wanted.items():
                before = sum(done.deleted.values())
                self._free(kind, num_bytes, done)
                if sum(done.deleted.values()) == before:
                    exhausted.add(kind)
            space = self._measure()
        done.after_bytes = space.used_bytes
        give_back(self._engine)

    def _measure(self) -> Space:
        with self._reading() as connection:
            return measure(connection)

    def _free(self, kind: Held, num_bytes: int, done: Pruned) -> None:
        if kind is Held.DETAIL:
            self._free_detail(done, num_bytes=num_bytes)
        elif kind is Held.MAPS:
            self._free_maps(done, num_bytes=num_bytes)
        elif kind is Held.GPUS:
            self._free_gpu_minutes(done, num_bytes)
        else:
            self._free_rows(kind, num_bytes, done)

    def _free_detail(
        self, done: Pruned, *, num_bytes: int | None = None, before_ns: int | None = None
    ) -> None:
        """Delete the oldest stretches: so many bytes, or all that end before a time."""
        done.pinned_bytes = 0
        freed, mark = self._drop_days(done, num_bytes, before_ns), Mark()
        while num_bytes is None or freed < num_bytes:
            with self._reading() as connection:
                units = oldest_stretches(connection, mark)
            for unit in units:
                mark = Mark(unit.start_at_ns, unit.run_key, unit.snapshot_seq)
                if before_ns is not None and unit.end_at_ns >= before_ns:
                    return
                if not self._stays_pinned(unit, done):
                    freed += self._delete_unit(unit, done)
                if num_bytes is not None and freed >= num_bytes:
                    return
            if not units:
                return

    def _drop_days(self, done: Pruned, num_bytes: int | None, before_ns: int | None) -> int:
        """Drop what days of chunks go as a whole, before stretches go one by one."""
        needed = Needed(self._pins, ALL_TIME if before_ns is None else before_ns)
        most = ALL_TIME if num_bytes is None else num_bytes
        gone = drop_days_of_chunks(self._engine, needed, most)
        if gone.rows:
            done.deleted[Held.DETAIL] = done.deleted.get(Held.DETAIL, 0) + gone.rows
        return gone.num_bytes

    def _stays_pinned(self, unit: DetailStretch, done: Pruned) -> bool:
        """Keep a stretch around an incident, and count what that takes."""
        # It ends where the next one begins, which may be where a pin does.
        last_ns = max(unit.start_at_ns, unit.end_at_ns - 1)
        if not self._pins.cover(unit.run_key, unit.start_at_ns, last_ns):
            return False
        with self._reading() as connection:
            query = f"SELECT COALESCE(SUM(LENGTH(data)), 0) FROM chunks WHERE {chunks_within(unit)}"
            size = int(connection.execute(text(query), unit._asdict()).scalar_one())
        done.pinned_bytes += size
        return True

    def _delete_unit(self, unit: DetailStretch, done: Pruned) -> int:
        bind, where = unit._asdict(), chunks_within(unit)
        state = "NULL" if unit.has_ended else "state_data"
        with self._engine.begin() as connection:
            row = connection.execute(
                text(
                    "SELECT COUNT(*) AS n, COALESCE(SUM(num_events), 0) AS events,"
                    f" COALESCE(SUM(LENGTH(data)), 0) AS bytes FROM chunks WHERE {where}"
                ),
                bind,
            ).one()
            connection.execute(text(f"DELETE FROM chunks WHERE {where}"), bind)
            connection.execute(
                text(
                    f"UPDATE snapshots SET detail_gone=1, state_data={state}"
                    " WHERE run_key=:run_key AND seq=:snapshot_seq"
                ),
                bind,
            )
            connection.execute(
                text(
                    "UPDATE runs SET events_pruned=events_pruned+:events,"
                    " num_chunks=num_chunks-:n, chunk_bytes=chunk_bytes-:bytes"
                    " WHERE run_key=:run_key"
                ),
                {
                    "n": row.n,
                    "events": int(row.events),
                    "bytes": int(row.bytes),
                    "run_key": unit.run_key,
                },
            )
        done.deleted[Held.DETAIL] = done.deleted.get(Held.DETAIL, 0) + max(int(row.n), 1)
        return int(row.bytes)

    def _free_maps(
        self, done: Pruned, *, num_bytes: int | None = None, before_ns: int | None = None
    ) -> None:
        """Delete the oldest snapshots whose chunks are gone."""
        before = ALL_TIME if before_ns is None else before_ns
        most = ALL_TIME if num_bytes is None else num_bytes
        gone = drop_days_of_maps(self._engine, Needed(self._pins, before), most)
        if gone.rows:
            done.deleted[Held.MAPS] = done.deleted.get(Held.MAPS, 0) + gone.rows
        freed = gone.num_bytes
        kept = self._pins.outside("at_ns", "at_ns")
        while num_bytes is None or freed < num_bytes:
            with self._engine.begin() as connection:
                rows = connection.execute(
                    text(
                        "SELECT run_key, seq, LENGTH(map_data) AS bytes FROM snapshots s"
                        " WHERE detail_gone=1 AND at_ns<:before AND state_data IS NULL"
                        # The first one behind detail that is kept tells where that ends.
                        " AND COALESCE((SELECT p.detail_gone FROM snapshots p WHERE"
                        " p.run_key=s.run_key AND p.seq<s.seq ORDER BY p.seq DESC LIMIT 1), 1)=1"
                        f" AND {kept.sql} ORDER BY at_ns, run_key, seq LIMIT :most"
                    ),
                    {"before": before, "most": BITE_MAPS, **kept.bind},
                ).all()
                for row in rows:
                    connection.execute(
                        text("DELETE FROM snapshots WHERE run_key=:key AND seq=:seq"),
                        {"key": row.run_key, "seq": row.seq},
                    )
            if not rows:
                return
            freed += sum(int(row.bytes) for row in rows)
            done.deleted[Held.MAPS] = done.deleted.get(Held.MAPS, 0) + len(rows)

    def _free_gpu_minutes(self, done: Pruned, num_bytes: int) -> None:
        with self._engine.begin() as connection:
            wanted = max(1, num_bytes // GPU_MINUTE_BYTES)
            number = delete_oldest_gpu_samples(connection, wanted)
        if number:
            done.deleted[Held.GPUS] = done.deleted.get(Held.GPUS, 0) + number

    def _free_rows(self, kind: Held, num_bytes: int, done: Pruned) -> None:
        """Delete the oldest stretches of a kind in steps of time, and what is finer with them."""
        cost = REQUEST_BYTES if kind is Held.REQUESTS else INTERVAL_BYTES
        wanted = max(1, num_bytes // cost)
        freed, cut = 0, 0
        with self._reading() as connection:
            newest = connection.execute(text("SELECT MAX(last_event_at_ns) FROM runs")).scalar()
        stop = (newest or 0) - KEPT_INTERVALS * TIER_OF.get(kind, 1) * NS
        while freed < wanted:
            with self._reading() as connection:
                oldest = oldest_row_ns(connection, kind, self._pins)
            if oldest is None or cut >= stop or oldest >= stop:
                break
            step_ns = TIER_OF.get(kind, 1) * SLICE_INTERVALS * NS
            slice_end = max(cut, oldest // step_ns * step_ns) + step_ns
            whole_end = whole_cut(self._engine, TIER_OF.get(kind), max(cut, oldest), stop)
            cut = min(whole_end or slice_end, stop)
            freed += self._delete_before(kind, cut, done)
        if not cut:
            return
        for finer in finer_than(kind):
            if finer is Held.DETAIL:
                self._free_detail(done, before_ns=cut)
            elif finer is Held.MAPS:
                self._free_maps(done, before_ns=cut)
            else:
                self._delete_before(finer, cut, done)

    def _delete_before(self, kind: Held, cut: int, done: Pruned) -> int:
        """Delete what ended before a time; return how many sequences or intervals that were."""
        # Whole partitions first: what they held is not deleted row by row.
        tier = TIER_OF.get(kind)
        number = drop_intervals(self._engine, tier, cut, self._pins) if tier is not None else 0
        with self._reading() as connection:
            runs = connection.execute(text("SELECT run_key FROM runs")).scalars()
            keys = [int(key) for key in runs]
        for key in keys:
            if kind is Held.REQUESTS:
                number += delete_requests(self._engine, key, cut, self._pins)
            else:
                number += delete_intervals(self._engine, key, TIER_OF[kind], cut, self._pins)
        if number:
            done.deleted[kind] = done.deleted.get(kind, 0) + number
        return number

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Lend a connection whose transaction takes no lock that a writer needs."""
        with self._reads.connect() as connection:
            yield connection
