"""`kvpulse export`: the store's history as Parquet files, one for each table."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.byte_size import bytes_text
from agent.commands.exit_codes import ExitCode
from agent.commands.moments import DURATION_FORMS, joined, parse_duration, parse_moment
from agent.config import load_config
from agent.errors import ConfigError, ExportInTheWay, ExportUnwritable, NotInstalled
from agent.export.private_file import PrivateFile
from agent.export.tables import ALL_TIME, TABLES, Span
from agent.reads.models import RunRow
from agent.reads.reads import Reads, open_reads
from agent.rollups.scalars import TIERS
from kvpulse.command import version

if TYPE_CHECKING:
    from agent.export.parquet import TableExport

PROGRESS_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file that was written."""

    table: str
    path: str
    rows: int
    bytes: int


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse export`."""
    arguments = _parser().parse_args(joined(list(argv), "--since", "--until"))
    config = load_config({"store": arguments.store, "config": arguments.config}, os.environ)
    tables = _tables(arguments.table)
    folder = Path(arguments.out).expanduser()
    table_export = _table_export()
    reads = open_reads(config.store)
    try:
        runs = choose_runs(reads, arguments.engine, arguments.run)
        span = _span(arguments, runs)
        runs = [run for run in runs if span.touches(run)]
        _prepare(folder, tables, force=arguments.force)
        files = []
        for table in tables:
            path = _path(folder, table)
            with PrivateFile(path, replace=arguments.force) as file:
                progress = Progress(table, file)
                export = table_export(reads, TABLES[table], span, on_rows=progress.show)
                written = export.write(runs, file, _notes(reads, span))
                progress.clear()
            files.append(ExportedFile(table, str(path), written.num_rows, written.num_bytes))
    finally:
        reads.close()
    _report(arguments, reads.label, span, runs, files)
    return ExitCode.GOOD


def choose_runs(reads: Reads, engine: str | None, run_id: str | None) -> list[RunRow]:
    """Return the runs that the user means, engine by engine, oldest first.

    Raises:
        ConfigError: There is no such engine or run.
    """
    names = [row.engine for row in reads.engines()]
    if engine is not None and engine not in names:
        raise ConfigError("--engine", engine, f"one of {', '.join(names) or 'none yet'}")
    wanted = names if engine is None else [engine]
    runs = [run for name in wanted for run in reversed(reads.runs(name))]
    chosen = [run for run in runs if run_id in (None, run.run_id)]
    if run_id is not None and not chosen:
        newest = ", ".join(run.run_id for run in runs[-3:]) or "none yet"
        raise ConfigError("--run", run_id, f"a run that is stored, such as {newest}")
    return chosen


def _table_export() -> "type[TableExport]":
    """Return what writes a file; its packages are an extra and imported on first use."""
    try:
        from agent.export.parquet import TableExport
    except ModuleNotFoundError as error:
        raise NotInstalled("`kvpulse export`", "export") from error
    return TableExport


def _tables(names: Sequence[str] | None) -> list[str]:
    wanted = [name for part in names or () for name in part.split(",") if name]
    for name in wanted:
        if name not in TABLES:
            raise ConfigError("--table", name, ", ".join(TABLES))
    return [name for name in TABLES if name in wanted] if wanted else list(TABLES)


def _span(arguments: argparse.Namespace, runs: Sequence[RunRow]) -> Span:
    newest_ns = max((run.last_event_at_ns or run.started_at_ns for run in runs), default=0)
    tiers: tuple[int, ...] = TIERS
    if arguments.tier is not None:
        tiers = tuple(tier for tier in TIERS if str(tier) == arguments.tier)
        if not tiers:
            raise ConfigError("--tier", arguments.tier, ", ".join(map(str, TIERS)) + " seconds")
    start_ns, end_ns = 0, ALL_TIME
    if arguments.until is not None:
        end_ns = parse_moment("--until", arguments.until, newest_ns=newest_ns)
    if arguments.since is not None:
        start_ns = parse_moment("--since", arguments.since, newest_ns=newest_ns)
    elif arguments.last is not None:
        last = parse_duration("--last", arguments.last)
        start_ns = max(0, min(end_ns, newest_ns) - last)
    if start_ns >= end_ns:
        raise ConfigError("--until", arguments.until, "a time after the one of --since")
    return Span(start_ns, end_ns, tiers)


def _prepare(folder: Path, tables: Sequence[str], *, force: bool) -> None:
    """Make the folder, and find what is in the way before anything is written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ExportUnwritable(folder, error) from error
    for table in () if force else tables:
        if os.path.lexists(_path(folder, table)):
            raise ExportInTheWay(_path(folder, table))


def _path(folder: Path, table: str) -> Path:
    return folder / f"{table}.parquet"


class Progress:
    """One line on a terminal's stderr, rewritten at most twice a second."""

    def __init__(self, table: str, file: PrivateFile) -> None:
        self._table = table
        self._file = file
        self._is_shown = sys.stderr.isatty()
        self._due = time.monotonic() + PROGRESS_SECONDS

    def show(self, num_rows: int) -> None:
        """Tell how far it is."""
        if self._is_shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + PROGRESS_SECONDS
            size = bytes_text(self._file.num_bytes)
            print(f"\r\x1b[K{self._table}: {num_rows:,} rows, {size}", end="", file=sys.stderr)

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _notes(reads: Reads, span: Span) -> Mapping[str, str]:
    return {
        "kvpulse.version": version(),
        "kvpulse.store": reads.label,
        "kvpulse.start_ns": str(span.start_ns),
        "kvpulse.end_ns": str(span.end_ns),
        "kvpulse.null": "not measured",
        "kvpulse.exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _report(
    arguments: argparse.Namespace,
    label: str,
    span: Span,
    runs: Sequence[RunRow],
    files: Sequence[ExportedFile],
) -> None:
    rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    if arguments.json:
        facts = {
            "store": label,
            "start_ns": span.start_ns,
            "end_ns": span.end_ns,
            "runs": [{"engine": run.engine, "run_id": run.run_id} for run in runs],
            "files": [asdict(file) for file in files],
            "rows": rows,
            "bytes": size,
        }
        print(json.dumps(facts))
        return
    for file in files:
        print(f"{file.table:14} {file.rows:>12,} rows {bytes_text(file.bytes):>10}  {file.path}")
    of_runs = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    print(f"{of_runs}, {rows:,} rows, {bytes_text(size)} in {len(files)} files")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse export",
        description=__doc__,
        epilog="Times in the files are typed (ns, UTC); other units are in the columns' names and "
        "in the schema. NULL: not measured. A file appears when it is whole.",
    )
    parser.add_argument("--out", metavar="FOLDER", required=True, help="made where missing")
    parser.add_argument(
        "--table", action="append", metavar="NAME", help=f"of {', '.join(TABLES)}; default: all"
    )
    parser.add_argument("--engine", help="default: all engines")
    parser.add_argument("--run", metavar="ID", help="default: all runs")
    parser.add_argument("--tier", metavar="SECONDS", help="of rollups; default: all, 1 to 3600")
    since = parser.add_mutually_exclusive_group()
    since.add_argument("--since", metavar="TIME", help="as of `block-map --at`; default: all")
    since.add_argument(
        "--last", metavar="TIME", help=f"{DURATION_FORMS}, counted back from the newest event"
    )
    parser.add_argument("--until", metavar="TIME", help="up to, but not at")
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    parser.add_argument("--store", metavar="PATH|URL", help="default: the agent's store")
    parser.add_argument("--config", metavar="FILE", help="TOML file with a table [agent]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
