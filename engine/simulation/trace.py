"""Read request traces: Mooncake JSONL, Azure CSV, BurstGPT CSV.

No trace holds text. Mooncake names the content of each stretch of 512 prompt tokens by an id that
stands for everything before it too, so equal leading ids are equal beginnings.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from engine.errors import TraceError

MOST_TOKENS: Final = 10_000_000
LONGEST_LINE: Final = 8 * 2**20
_MOONCAKE: Final = (
    'a JSON object with "timestamp" (ms, 0 or more), "input_length" and "output_length" '
    '(tokens, from 1), and "hash_ids" (one whole number per 512 or per 16 prompt tokens)'
)
_AZURE: Final = "TIMESTAMP (date and time), ContextTokens and GeneratedTokens (from 1)"
_BURSTGPT: Final = "Timestamp (seconds), Request tokens and Response tokens (from 0)"
_ANY: Final = (
    "Mooncake JSONL (a file named *.jsonl), Azure CSV (TIMESTAMP,ContextTokens,GeneratedTokens), "
    "or BurstGPT CSV (Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type)"
)


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace.

    Attributes:
        arrival_ns: Since the first request of the trace.
        content_ids: One per `Trace.tokens_per_id` prompt tokens, the last one may be partial.
    """

    arrival_ns: int
    num_prompt_tokens: int
    num_output_tokens: int
    content_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, in order of arrival.

    Attributes:
        tokens_per_id: Prompt tokens that one content id stands for; 0 if there are none.
        num_skipped: Rows without any output (failed requests in BurstGPT).
    """

    rows: list[TraceRow]
    tokens_per_id: int = 0
    num_skipped: int = 0


def read_trace(path: Path) -> Trace:
    """Read a trace; what it is shows in its name and first line.

    Raises:
        TraceError: A line is not what the format allows; it says which and what would be.
        OSError: The file cannot be read.
    """
    lines = list(_lines(path))
    if not lines:
        raise TraceError(path, 1, found="the file is empty", accepted=_ANY)
    if path.suffix == ".jsonl" or lines[0].lstrip().startswith("{"):
        return _read_mooncake(path, lines)
    header = [name.strip() for name in lines[0].split(",")]
    if "ContextTokens" in header:
        return _read_azure(path, lines)
    if "Request tokens" in header:
        return _read_burstgpt(path, lines)
    raise TraceError(path, 1, found=f"an unknown header {lines[0][:80]!r}", accepted=_ANY)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                found = f"a line of {LONGEST_LINE} bytes or more"
                raise TraceError(path, number, found=found, accepted=_ANY)
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise TraceError(path, number, found="no UTF-8 text", accepted=_ANY) from error


def _read_mooncake(path: Path, lines: list[str]) -> Trace:
    rows: list[TraceRow] = []
    tokens_per_id = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = _mooncake_row(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            found = f"{_reason(error)} in {line[:80]!r}"
            raise TraceError(path, number, found=found, accepted=_MOONCAKE) from error
        tokens_per_id = tokens_per_id or _tokens_per_id(row)
        expected = -(-row.num_prompt_tokens // tokens_per_id) if tokens_per_id else 0
        if len(row.content_ids) != expected:
            found = f"{len(row.content_ids)} hash_ids for {row.num_prompt_tokens} tokens"
            raise TraceError(path, number, found=found, accepted=f"{expected} of them")
        rows.append(row)
    return _in_order(path, rows, tokens_per_id)


def _mooncake_row(value: object) -> TraceRow:
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    milliseconds = value["timestamp"]
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        raise ValueError("timestamp is no number")
    if not 0 <= milliseconds < 1e12:
        raise ValueError(f"timestamp {milliseconds} is out of range")
    ids = value.get("hash_ids", [])
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 2**63 for i in ids):
        raise ValueError("hash_ids is no list of whole numbers")
    return TraceRow(
        round(milliseconds * 1e6),
        _tokens("input_length", value["input_length"], least=1),
        _tokens("output_length", value["output_length"], least=1),
        tuple(ids),
    )


def _tokens_per_id(row: TraceRow) -> int:
    for size in (512, 16):
        if len(row.content_ids) == -(-row.num_prompt_tokens // size):
            return size
    return 512 if row.content_ids else 0


def _read_azure(path: Path, lines: list[str]) -> Trace:
    rows: list[TraceRow] = []
    for number, fields in _csv_rows(path, lines, _AZURE):
        try:
            row = TraceRow(
                _timestamp_ns(fields["TIMESTAMP"]),
                _tokens("ContextTokens", int(fields["ContextTokens"]), least=1),
                _tokens("GeneratedTokens", int(fields["GeneratedTokens"]), least=1),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(path, number, found=_reason(error), accepted=_AZURE) from error
        rows.append(row)
    return _in_order(path, rows, 0)


def _read_burstgpt(path: Path, lines: list[str]) -> Trace:
    rows: list[TraceRow] = []
    num_skipped = 0
    for number, fields in _csv_rows(path, lines, _BURSTGPT):
        try:
            seconds = float(fields["Timestamp"])
            if not 0 <= seconds < 1e10:
                raise ValueError(f"Timestamp {seconds} is out of range")
            prompt = _tokens("Request tokens", int(fields["Request tokens"]), least=0)
            output = _tokens("Response tokens", int(fields["Response tokens"]), least=0)
        except (ValueError, KeyError, TypeError) as error:
            raise TraceError(path, number, found=_reason(error), accepted=_BURSTGPT) from error
        if prompt and output:
            rows.append(TraceRow(round(seconds * 1e9), prompt, output))
        else:
            num_skipped += 1
    return _in_order(path, rows, 0, num_skipped)


def _csv_rows(path: Path, lines: list[str], accepted: str) -> Iterator[tuple[int, dict[str, str]]]:
    header = [name.strip() for name in lines[0].split(",")]
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        try:
            (values,) = csv.reader([line], strict=True)
        except (csv.Error, ValueError) as error:
            raise TraceError(path, number, found=_reason(error), accepted=accepted) from error
        if len(values) != len(header):
            found = f"{len(values)} columns under a header of {len(header)}"
            raise TraceError(path, number, found=found, accepted=accepted)
        yield number, dict(zip(header, values, strict=True))


def _timestamp_ns(text: str) -> int:
    """Return a UTC time as ns since 1970; Azure writes seven digits of a second."""
    whole, _, fraction = text.strip().partition(".")
    moment = datetime.strptime(whole + "+0000", "%Y-%m-%d %H:%M:%S%z")
    if fraction and not (fraction.isascii() and fraction.isdigit()):
        raise ValueError(f"TIMESTAMP {text!r} has no decimal fraction")
    return int(moment.timestamp()) * 10**9 + int((fraction or "0")[:9].ljust(9, "0"))


def _tokens(name: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_TOKENS:
        raise ValueError(f"{name} is {str(value)[:40]}, not from {least} to {MOST_TOKENS}")
    return value


def _in_order(path: Path, rows: list[TraceRow], tokens_per_id: int, num_skipped: int = 0) -> Trace:
    if not rows:
        raise TraceError(path, 1, found="no request", accepted="at least one")
    rows.sort(key=lambda row: row.arrival_ns)
    first_ns = rows[0].arrival_ns
    moved = [
        TraceRow(
            row.arrival_ns - first_ns,
            row.num_prompt_tokens,
            row.num_output_tokens,
            row.content_ids,
        )
        for row in rows
    ]
    return Trace(moved, tokens_per_id, num_skipped)


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)[:160]
