"""The rows of one delta, into the transaction of its commit."""

from sqlalchemy import Connection, text

from agent.chunks.merge import MergePlan
from agent.ledger.delta import LedgerDelta, Snapshot
from agent.rollups.repeats import RepeatPlan
from agent.store import rows as store_rows
from agent.store.copy import RowWriter
from agent.store.rows import Row
from agent.store.statements import Statements
from agent.store.stream_id import Progress


class DeltaRows:
    """Writes what a commit stores beside the position."""

    def __init__(self, statements: Statements, rows: RowWriter) -> None:
        self._statements = statements
        self._rows = rows

    def write(self, connection: Connection, key: int, delta: LedgerDelta) -> None:
        """Store what a delta holds, but its rollups."""
        offset = delta.wall_offset_ns
        strings: list[Row] = [(key, number, value) for number, value in delta.strings.items()]
        chunks = store_rows.chunk_rows(key, offset, delta.chunks)
        if chunks:
            self._rows.insert(connection, "chunks", chunks)
        for table, rows in (
            ("latencies", store_rows.latency_rows(key, offset, delta.latencies)),
            ("labelled", store_rows.labelled_rows(key, offset, delta.labelled)),
            ("requests", store_rows.request_rows(key, offset, delta.requests)),
            ("gaps", store_rows.gap_rows(key, offset, delta.gaps)),
            ("leaks", store_rows.leak_rows(key, offset, delta.leaks)),
            ("broken_laws", store_rows.broken_law_rows(key, offset, delta.broken_laws)),
            ("clock_steps", store_rows.clock_step_rows(key, offset, delta.clock_steps)),
            ("strings", strings),
        ):
            if rows:
                self._rows.replace(connection, table, rows)
        kinds = store_rows.kind_rows(key, delta)
        if kinds:
            connection.exec_driver_sql(self._statements.add_kinds, kinds)
        if delta.snapshot is not None:
            self._write_snapshot(connection, key, offset, delta.snapshot)
        if delta.config is not None:
            self._write_config(connection, key, delta)

    def write_rollups(
        self, connection: Connection, key: int, offset: int, plan: RepeatPlan
    ) -> None:
        """Store rollup rows, and drop those that another now stands for."""
        dropped = [(key, row.tier_seconds, row.t_ns + offset) for row in plan.dropped]
        rows = store_rows.rollup_rows(key, offset, plan.rows)
        if dropped:
            connection.exec_driver_sql(self._statements.drop_rollup, dropped)
        if rows:
            self._rows.replace(connection, "rollups", rows)

    def merge(self, connection: Connection, key: int, offset: int, plan: MergePlan) -> None:
        """Put a joined chunk in the place of small ones."""
        if plan.merged is None:
            return
        joined = [(key, chunk.seq0, chunk.t0_ns + offset) for chunk in plan.joined]
        connection.exec_driver_sql(self._statements.drop_chunk, joined)
        rows = store_rows.chunk_rows(key, offset, (plan.merged,))
        connection.exec_driver_sql(self._statements.insert["chunks"], rows)

    def _write_snapshot(
        self, connection: Connection, key: int, offset: int, snapshot: Snapshot
    ) -> None:
        at_ns = snapshot.t_ns + offset
        row = (key, snapshot.seq, at_ns, snapshot.map_blob, snapshot.state_blob, 0)
        connection.exec_driver_sql(self._statements.replace["snapshots"], row)
        connection.exec_driver_sql(self._statements.drop_states, (key, snapshot.seq))

    def _write_config(self, connection: Connection, key: int, delta: LedgerDelta) -> None:
        assert delta.config is not None
        fingerprint = store_rows.fingerprint_text(delta.config)
        at_ns = delta.t_ns + delta.wall_offset_ns
        connection.exec_driver_sql(self._statements.replace["configs"], (key, at_ns, fingerprint))
        connection.execute(
            text("UPDATE runs SET fingerprint=:fingerprint WHERE run_key=:key"),
            {"fingerprint": fingerprint, "key": key},
        )

    def touch(
        self,
        connection: Connection,
        key: int,
        delta: LedgerDelta,
        progress: Progress,
        plan: MergePlan,
    ) -> None:
        """Add to the run's totals."""
        last_event = delta.t_ns + delta.wall_offset_ns if delta.t_ns else None
        values = (
            *(sum(delta.stored), sum(delta.lost), len(delta.gaps)),
            len(delta.chunks) + plan.num_chunks,
            sum(len(chunk.blob) for chunk in delta.chunks) + plan.num_bytes,
            *(delta.audits.passed, delta.audits.failed),
            *(last_event, progress.committed_at_ns, key),
        )
        connection.exec_driver_sql(self._statements.touch_run, values)
