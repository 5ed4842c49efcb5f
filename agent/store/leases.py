"""The leases of streams in the store: one agent writes a stream, and a dead one's passes on.

The row is locked first in every transaction on a stream. So whatever an earlier attempt of ours
left under way on the server (its connection was cut) has come to its end before we look, and an
agent that was taken over from finds that out before it writes.
"""

from collections.abc import Callable, Iterable

from sqlalchemy import Connection, text

from agent.errors import LeaseLost, StreamHeld
from agent.store.holder import SILENT_SECONDS, Beat, Holder, LeaseWatch
from agent.store.statements import Statements
from agent.store.stream_id import StreamId

_HERE = "WHERE engine=:engine AND run_id=:run_id"
_MINE = f"{_HERE} AND holder=:holder"


class Leases:
    """What one agent holds, takes over, renews and gives back."""

    def __init__(
        self,
        holder: Holder,
        watch: LeaseWatch,
        statements: Statements,
        wall_ns: Callable[[], int],
    ) -> None:
        self.holder = holder
        self._watch = watch
        self._renew = statements.renew_lease
        self._wall_ns = wall_ns  # for those who read the store; no lease depends on it

    def take(self, connection: Connection, stream: StreamId) -> None:
        """Make the lease ours.

        Raises:
            StreamHeld: Another agent has it, and is not known to be dead.
        """
        if self._insert(connection, stream) or self._renewed(connection, stream):
            return
        row = connection.execute(
            text(f"SELECT holder, process, beat FROM leases {_HERE}"), _names(stream)
        ).first()
        lease = Beat(row.holder, row.process, row.beat) if row else None
        if lease is None or not self._watch.is_over(stream, lease):
            is_proven = lease is None or self._watch.is_proven(stream)
            name = lease.holder if lease else "that has just let go"
            raise StreamHeld(str(stream), name, is_proven=is_proven)
        taken = connection.execute(
            text(
                "UPDATE leases SET holder=:mine, process=:process, beat=beat+1, renewed_at_ns=:now"
                f" {_MINE} AND beat=:beat"
            ),
            {
                **_names(stream),
                "now": self._wall_ns(),
                "mine": self.holder.name,
                "process": self.holder.process,
                "holder": lease.holder,
                "beat": lease.beat,
            },
        )
        if taken.rowcount != 1:
            raise StreamHeld(str(stream), lease.holder, is_proven=True)
        self._watch.forget(stream)

    def keep(self, connection: Connection, stream: StreamId) -> None:
        """Renew the lease, and keep its row locked to the end of the transaction.

        Raises:
            LeaseLost: It is no longer ours.
        """
        if not self._renewed(connection, stream):
            raise LeaseLost(str(stream), SILENT_SECONDS)

    def renew(self, connection: Connection, streams: Iterable[StreamId]) -> None:
        """Renew the leases of streams that have nothing to store just now."""
        rows = [self._mine(stream) for stream in streams]
        if rows:
            connection.exec_driver_sql(self._renew, rows)

    def give_back(self, connection: Connection, stream: StreamId) -> None:
        """Let others have the stream at once."""
        row = {**_names(stream), "holder": self.holder.name}
        connection.execute(text(f"DELETE FROM leases {_MINE}"), row)

    def _insert(self, connection: Connection, stream: StreamId) -> bool:
        added = connection.execute(
            text(
                "INSERT INTO leases (engine, run_id, holder, process, beat, renewed_at_ns)"
                " VALUES (:engine, :run_id, :holder, :process, 1, :now)"
                " ON CONFLICT (engine, run_id) DO NOTHING"
            ),
            {
                **_names(stream),
                "holder": self.holder.name,
                "process": self.holder.process,
                "now": self._wall_ns(),
            },
        )
        return added.rowcount == 1

    def _renewed(self, connection: Connection, stream: StreamId) -> bool:
        return connection.exec_driver_sql(self._renew, self._mine(stream)).rowcount == 1

    def _mine(self, stream: StreamId) -> tuple[int, str, str, str]:
        """Return the values of `Statements.renew_lease`."""
        return self._wall_ns(), stream.engine, stream.run_id, self.holder.name


def _names(stream: StreamId) -> dict[str, str]:
    return {"engine": stream.engine, "run_id": stream.run_id}
