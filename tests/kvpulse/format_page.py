"""A second parser of the journal, built from the tables of `docs/journal-format.md` alone."""

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "journal-format.md"


class Field(NamedTuple):
    offset: int
    size: int

    def read(self, data: bytes) -> int:
        return int.from_bytes(data[self.offset : self.offset + self.size], "little")

    def counters(self, data: bytes) -> list[int]:
        part = data[self.offset : self.offset + self.size]
        return [int.from_bytes(part[at : at + 8], "little") for at in range(0, len(part), 8)]


class KindRow(NamedTuple):
    name: str
    lane: str
    events: str


class Decoded(NamedTuple):
    """One record: its fields by name, its kind's name, its payload words."""

    fields: dict[str, int]
    kind: str
    words: list[int]


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return each table's rows under its heading."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| ") and not line.startswith("| ---"):
            found.setdefault(heading, []).append(
                [cell.strip(" `") for cell in line.split("|")[1:-1]]
            )
    return found


class FormatPage:
    """What the page says."""

    def __init__(self, text: str) -> None:
        self.tables = tables(text)
        self.header = self._fields("Header")
        self.record = self._fields("Record")
        self.loss = self._fields("Loss page")
        self.keyframe = self._fields("Keyframe prefix")
        self.sequence = self._fields("Keyframe sequence")
        parts = self.tables["Segment"][1:]
        self.records_start = int(parts[1][1])
        self.record_bytes = int(re.search(r"records of (\d+) bytes", parts[1][2])[1])
        words_start = re.fullmatch(r"(\d+) \+ (\d+) x .*", parts[2][1])
        self.words_start = int(words_start[1]), int(words_start[2])
        lanes, kinds = self._split("Kinds", "lane", "code")
        self.lane_words = {row[0]: row[2] for row in lanes}
        self.inline = {row[0] for row in lanes if "no lane words" in row[3]}
        self.kinds = {int(row[0]): KindRow(*row[1:4]) for row in kinds}

    def decode_segment(self, data: bytes) -> list[Decoded]:
        """Return every committed record."""
        capacity = self.header["record_capacity"].read(data)
        lane = self.words_start[0] + self.words_start[1] * capacity
        records = []
        for index in range(self.header["commit"].read(data)):
            at = self.records_start + index * self.record_bytes
            raw = data[at : at + self.record_bytes]
            fields = {name: field.read(raw) for name, field in self.record.items()}
            kind = self.kinds[fields["kind"]]
            records.append(Decoded(fields, kind.name, self._payload(fields, kind, data[lane:])))
        return records

    def decode_keyframe(
        self, words: list[int]
    ) -> tuple[list[dict[str, int]], dict[str, list[int]]]:
        """Return the sequences and every part by its name."""
        data = b"".join(word.to_bytes(4, "little") for word in words)
        prefix = {name: field.read(data) for name, field in self.keyframe.items()}
        at = max(field.offset + field.size for field in self.keyframe.values()) // 4
        parts = {}
        for name, size in self.tables["Keyframe parts"][1:]:
            factor, _, count = size.replace("`", "").rpartition(" x ")
            length = int(factor or 1) * prefix[count]
            parts[name] = words[at : at + length]
            at += length
        rows = next(value for name, value in parts.items() if name.startswith("sequences"))
        raw = b"".join(word.to_bytes(4, "little") for word in rows)
        width = len(raw) // max(1, prefix["num_sequences"])
        sequences = [
            {name: field.read(raw[start : start + width]) for name, field in self.sequence.items()}
            for start in range(0, len(raw), width or 1)
        ]
        assert at == len(words)
        return sequences, parts

    def events(self, record: Decoded) -> int:
        """Return what a record counts for."""
        (row,) = [row for row in self.kinds.values() if row.name == record.kind]
        return record.fields["n"] if row.events == "n" else 1

    def _payload(self, fields: dict[str, int], kind: KindRow, lane: bytes) -> list[int]:
        n = fields["n"]
        if n == 1 and kind.lane in self.inline:
            return [fields["first"]]
        factor = int(self.lane_words[kind.lane].removesuffix("n") or 1)
        start = 4 * fields["first"]
        raw = lane[start : start + 4 * n * factor]
        return [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]

    def _fields(self, heading: str) -> dict[str, Field]:
        """Return one layout table; its rows must be in order and must not overlap."""
        fields = {row[2]: Field(int(row[0]), int(row[1])) for row in self.tables[heading][1:]}
        layout = list(fields.values())
        for before, after in pairwise(layout):
            if after.offset < before.offset + before.size:
                raise ValueError(f"{heading}: fields overlap at {after.offset}")
        return fields

    def _split(self, heading: str, *starts: str) -> list[list[list[str]]]:
        """Return the tables under one heading, told apart by their first column's name."""
        groups: list[list[list[str]]] = []
        for row in self.tables[heading]:
            if row[0] in starts:
                groups.append([])
            else:
                groups[-1].append(row)
        return groups
