"""How much room a store takes, and giving back what it no longer uses."""

from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, text

from agent.store.partition_drop import drop_empty
from agent.store.retention import INTERVAL_BYTES, REQUEST_BYTES, TIER_OF, Held

VACUUM_PAGES: Final = 256  # in one transaction: a megabyte, so that the agent's commits fit between
GPU_MINUTE_BYTES: Final = 200  # a row of one GPU with its indexes, roughly
PRUNE_LOCK: Final = 0x6B76_7078  # advisory lock on Postgres: one prunes for the whole fleet


class Space(NamedTuple):
    """What a store takes."""

    used_bytes: int
    weights: dict[Held, int]  # how `used_bytes` is spread, roughly; `maps` and `detail` exactly


def used_bytes(connection: Connection) -> int:
    """Return the bytes in use; on Postgres those of the rows that are alive, not of the files."""
    if connection.dialect.name == "sqlite":
        pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
        return pages * _pragma(connection, "page_size")
    return sum(_weights(connection).values())


def measure(connection: Connection) -> Space:
    """Return the bytes in use and what they are spent on."""
    weights = _weights(connection)
    if connection.dialect.name != "sqlite":
        return Space(sum(weights.values()), weights)
    used = used_bytes(connection)
    blobs = weights[Held.DETAIL] + weights[Held.MAPS]
    rows = sum(weights.values()) - blobs
    scale = max(used - blobs, 0) / rows if rows else 1.0
    scaled = {
        kind: size if kind in (Held.DETAIL, Held.MAPS) else int(size * scale)
        for kind, size in weights.items()
    }
    return Space(used, scaled)


def _weights(connection: Connection) -> dict[Held, int]:
    query = connection.exec_driver_sql
    detail = int(query("SELECT COALESCE(SUM(chunk_bytes), 0) FROM runs").scalar_one())
    maps = query("SELECT COALESCE(SUM(LENGTH(map_data)), 0) FROM snapshots").scalar_one()
    requests = query("SELECT COUNT(*) FROM requests").scalar_one()
    rows = query("SELECT tier_seconds, COUNT(*) FROM rollups GROUP BY tier_seconds").all()
    intervals = {int(tier): int(number) for tier, number in rows}
    weights = {Held.DETAIL: detail, Held.MAPS: int(maps), Held.REQUESTS: requests * REQUEST_BYTES}
    gpu_minutes = query("SELECT COUNT(*) FROM gpu_samples").scalar_one()
    weights[Held.GPUS] = gpu_minutes * GPU_MINUTE_BYTES
    for kind, tier in TIER_OF.items():
        weights[kind] = intervals.get(tier, 0) * INTERVAL_BYTES
    return weights


def give_back(engine: Engine) -> None:
    """Return free pages to the file system, a little at a time.

    Postgres gives back whole partitions; what is free within others, later rows use.
    """
    if engine.dialect.name != "sqlite":
        drop_empty(engine)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for table in ("chunks", "snapshots", "requests", "rollups", "latencies", "labelled"):
                connection.execute(text(f"VACUUM {table}"))
        return
    with engine.connect() as connection:
        while _pragma(connection, "freelist_count"):
            left = _pragma(connection, "freelist_count")
            _each_row(connection, f"PRAGMA incremental_vacuum({VACUUM_PAGES})")
            if _pragma(connection, "freelist_count") >= left:
                return  # not a store that can shrink
    checkpoint(engine, wait_seconds=0.0)


def wal_bytes(path: Path) -> int:
    """Return the size of an SQLite store's write-ahead log; 0 without one."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


def checkpoint(engine: Engine, *, wait_seconds: float) -> bool:
    """Copy SQLite's write-ahead log into the file and empty it; return whether that worked.

    It cannot while somebody reads an older state. Then it waits, so long in all, for these to end
    and for those to end that began meanwhile, and keeps writers waiting.
    """
    with engine.connect() as connection:
        before = _pragma(connection, "busy_timeout")
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute(f"PRAGMA busy_timeout={int(wait_seconds * 1000)}")
        try:
            busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            driver.execute(f"PRAGMA busy_timeout={before}")
    return not busy


def _pragma(connection: Connection, name: str) -> int:
    driver = connection.connection.driver_connection
    assert driver is not None
    return int(driver.execute(f"PRAGMA {name}").fetchone()[0])


def _each_row(connection: Connection, statement: str) -> None:
    # Without a transaction of ours around it, and stepped to its end: each step frees one page.
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute(statement).fetchall()
