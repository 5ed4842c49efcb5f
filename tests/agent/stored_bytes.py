"""Everything that lies in a journal or a store, laid open for a search."""

import re
from collections.abc import Iterator
from pathlib import Path

import zstandard
from sqlalchemy import create_engine, inspect, text

FRAME = b"\x28\xb5\x2f\xfd"
MOST_BYTES = 64 << 20
ZEROS = re.compile(rb"\0{4096,}")  # reserved and never written


def journal_bytes(journal: Path) -> Iterator[bytes]:
    """Yield every name and every file under a journal folder."""
    for path in sorted(journal.rglob("*")):
        yield str(path.relative_to(journal)).encode()
        if path.is_file():
            yield ZEROS.sub(b"", path.read_bytes())


def store_bytes(store: str) -> Iterator[bytes]:
    """Yield an SQLite store's files as they are, then every cell of every table, unpacked."""
    if "://" not in store:
        for path in sorted(Path(store).parent.glob(Path(store).name + "*")):
            yield path.read_bytes()
    engine = create_engine(store if "://" in store else f"sqlite:///{store}")
    with engine.connect() as connection:
        for table in inspect(engine).get_table_names():
            yield table.encode()
            for row in connection.execute(text(f'SELECT * FROM "{table}"')):
                for cell in row:
                    yield from _laid_open(cell)
    engine.dispose()


def _laid_open(cell: object) -> Iterator[bytes]:
    """Yield a cell's bytes, and those of every zstd frame within it, whatever stands around."""
    if not isinstance(cell, bytes):
        yield str(cell).encode()
        return
    yield cell
    at = cell.find(FRAME)
    while at >= 0:
        try:
            unpacked = zstandard.ZstdDecompressor().decompress(
                cell[at:], max_output_size=MOST_BYTES
            )
        except zstandard.ZstdError:
            unpacked = b""  # the magic by chance, in the middle of something else
        yield unpacked
        at = cell.find(FRAME, at + 1)
