"""What a server recorded, read when it has ended."""

from pathlib import Path

import numpy as np

from kvpulse.events import Kind
from kvpulse.reader import StreamReader
from kvpulse.stream_values import expand_words


class Recorded:
    """All records of one stream, read after the server has ended."""

    def __init__(self, folder: Path) -> None:
        self._batches = []
        (stream,) = (folder / "journal").glob("engine/*")
        reader = StreamReader(stream)
        while (batch := reader.read()) is not None:
            self._batches.append(batch)

    def words(self, kind: Kind) -> list[np.ndarray]:
        return [
            expand_words(batch, int(index))
            for batch in self._batches
            for index in np.flatnonzero(batch.records["kind"] == kind)
        ]

    def field(self, kind: Kind, name: str) -> list[int]:
        return [
            int(value)
            for batch in self._batches
            for value in batch.records[name][batch.records["kind"] == kind]
        ]

    def strings(self) -> list[str]:
        return [
            words.astype("<u4").tobytes().rstrip(b"\0").decode()
            for words in self.words(Kind.DEFINE)
        ]
