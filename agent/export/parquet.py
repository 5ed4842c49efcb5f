"""One exported table as a Parquet file, a row group at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, Schema
from arro3.io import write_parquet

from agent.errors import StoreUnreadable
from agent.export.columns import Column, ColumnKind, texts
from agent.export.private_file import PrivateFile
from agent.export.tables import ExportTable, Span
from agent.reads.models import RunRow
from agent.reads.reads import Reads

# What memory holds of some 80 columns of rollups: a row group, encoded, and the dictionaries.
ROW_GROUP_ROWS: Final = 32_768
DICTIONARY_BYTES: Final = 1 << 16
COMPRESSION: Final = "zstd(3)"
NAMED: Final = texts("engine", "run_id")  # before each table's own columns
TYPES: Final[Mapping[ColumnKind, Any]] = {
    ColumnKind.TIME: DataType.timestamp("ns", tz="UTC"),
    ColumnKind.INTEGER: DataType.int64(),
    ColumnKind.UNSIGNED: DataType.uint64(),
    ColumnKind.NUMBER: DataType.float64(),
    ColumnKind.FLAG: DataType.bool(),
    ColumnKind.TEXT: DataType.string(),
}


@dataclass(frozen=True, slots=True)
class Written:
    """What a finished file holds."""

    num_rows: int
    num_bytes: int


class TableExport:
    """Writes one table of several runs; `on_rows` hears how many rows there are so far."""

    def __init__(
        self, reads: Reads, table: ExportTable, span: Span, *, on_rows: Callable[[int], None]
    ) -> None:
        self._reads = reads
        self._table = table
        self._span = span
        self._on_rows = on_rows
        self._num_rows = 0
        self._error: BaseException | None = None

    def write(self, runs: Iterable[RunRow], file: PrivateFile, notes: Mapping[str, str]) -> Written:
        """Write and publish the file.

        Args:
            runs: Whose rows, in this order.
            file: Where to; published when it is whole.
            notes: What the schema says of the export as a whole.

        Raises:
            StoreUnreadable: The store went away, or holds what no agent writes.
            ExportUnwritable: The file could not be written.
            ExportInTheWay: There is a file of that name.
        """
        columns = (*NAMED, *self._table.columns)
        fields = [
            Field(column.name, TYPES[column.kind], nullable=True, metadata=column.notes)
            for column in columns
        ]
        about = {"kvpulse.table": self._table.name, "kvpulse.row": self._table.text, **notes}
        schema = Schema(fields, metadata=about)
        batches = self._until_an_error(self._batches(runs, schema, file))
        write_parquet(
            RecordBatchReader.from_batches(schema, batches),
            file,
            compression=COMPRESSION,
            max_row_group_size=ROW_GROUP_ROWS,
            dictionary_page_size_limit=DICTIONARY_BYTES,
        )
        if self._error is not None:
            raise self._error
        file.publish()
        return Written(self._num_rows, file.num_bytes)

    def _until_an_error(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield what comes; an error ends it and is kept: arro3 would only keep its text."""
        try:
            yield from batches
        except BaseException as error:  # noqa: BLE001 - `write` raises it again
            self._error = error

    def _batches(self, runs: Iterable[RunRow], schema: Any, file: PrivateFile) -> Iterator[Any]:
        for run in runs:
            for page in self._table.pages(self._reads, run, self._span):
                if file.error is not None:
                    return
                num_rows = len(next(iter(page.values())))
                named = {"engine": [run.engine] * num_rows, "run_id": [run.run_id] * num_rows}
                page = {**named, **page}
                arrays = [
                    self._array(column, page[column.source])
                    for column in (*NAMED, *self._table.columns)
                ]
                yield RecordBatch.from_arrays(arrays, schema=schema)
                self._num_rows += num_rows
                self._on_rows(self._num_rows)

    def _array(self, column: Column, values: list[Any]) -> Any:
        try:
            values = column.values_of(values)
            if column.kind is ColumnKind.TIME:
                return Array(values, type=DataType.int64()).cast(TYPES[column.kind])
            return Array(values, type=TYPES[column.kind])
        except (TypeError, OverflowError, UnicodeError) as error:
            # SQLite keeps any value in any column, and others may have written the file.
            where = f"{self._table.name}.{column.source} holds what is no {column.kind}"
            raise StoreUnreadable(self._reads.label, f"{where}: {error}") from error
