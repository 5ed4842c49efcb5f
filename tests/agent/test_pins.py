"""What is around an incident outlives the rest, within a fifth of the budget, on both databases."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.reads.reads import open_reads
from agent.store import pins as store_pins
from agent.store.connection import open_for_reading, open_for_writing, parse_address
from agent.store.pins import Pins, held_pins
from agent.store.prune_rows import delete_intervals, delete_requests, oldest_row_ns
from agent.store.retention import Held, Pin, PinnedSlice, merged, within_limit
from tests.agent.factories_prune import fill_with_snapshots, prune, recorded_store, rows
from tests.agent.incidents.factories_incidents import closed, opened, write
from tests.agent.simulated_writer import record
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

NS = 1_000_000_000
WHOLE = "SELECT COALESCE(SUM(LENGTH(data)), 0) FROM chunks"
UNENDED = 1 << 62


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "journal"
    record(folder, num_requests=300)
    return folder


@pytest.fixture(autouse=True)
def around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_pins, "AROUND_NS", 4 * NS)  # instead of ten minutes


@pytest.fixture
def path(tmp_path: Path) -> str:
    return recorded_store(tmp_path)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return recorded_store(tmp_path)
    url: str = request.getfixturevalue("postgres_url")
    fill_with_snapshots(url, request.getfixturevalue("journal"))
    return url


def snapshot_at(where: str, number: int) -> tuple[int, int]:
    """Return when a snapshot was made, and its run."""
    query = "SELECT at_ns, run_key FROM snapshots ORDER BY seq LIMIT 1 OFFSET :number"
    ((at_ns, key),) = rows(where, query, number=number)
    return int(str(at_ns)), int(str(key))


def put_incident(where: str, at_ns: int, run_key: int) -> None:
    over = {"opened_at_ns": at_ns, "engine": "sim-a", "seen_at_ns": at_ns}
    write(where, run_key, opened(**over), closed(at_ns, opened_at_ns=at_ns, engine="sim-a"))


def is_exact(where: str, run_key: int, at_ns: int) -> bool:
    reads = open_reads(where)
    found = reads.block_map(run_key, at_ns)
    reads.close()
    return found is not None and found.exact


def size_of(where: str) -> int:
    return prune(where, 1 << 40).before_bytes


def test_detail_around_an_incident_stays_while_older_and_later_detail_goes(where: str) -> None:
    at_ns, key = snapshot_at(where, 2)
    other_ns, _ = snapshot_at(where, 5)
    put_incident(where, at_ns, key)
    ((before,),) = rows(where, WHOLE)

    done = prune(where, int(size_of(where) * 0.8))

    assert done.is_within
    ((after,),) = rows(where, WHOLE)
    assert int(str(after)) < int(str(before))
    assert 0 < done.pinned_bytes <= done.budget_bytes * 0.2
    assert all(is_exact(where, key, at_ns + second * NS) for second in (-3, 0, 3))
    assert not is_exact(where, key, other_ns + NS)


def test_the_oldest_pin_goes_first_beyond_a_fifth_of_the_budget(path: str) -> None:
    (old_ns, key), (new_ns, _) = snapshot_at(path, 1), snapshot_at(path, 5)
    put_incident(path, old_ns, key)
    put_incident(path, new_ns, key)

    done = prune(path, int(size_of(path) * 0.55))

    assert done.is_within
    assert 0 < done.pinned_bytes <= done.budget_bytes * 0.2
    assert is_exact(path, key, new_ns + NS)
    assert not is_exact(path, key, old_ns + NS)


def test_pins_are_all_runs_of_the_engine_in_the_time_and_grow_with_an_open_incident(
    path: str,
) -> None:
    at_ns, key = snapshot_at(path, 2)
    write(path, key, opened(opened_at_ns=at_ns, seen_at_ns=at_ns + 9 * NS, engine="sim-a"))

    engine = open_for_reading(parse_address(path))
    with engine.connect() as connection:
        whole = held_pins(connection, 1 << 40)
        nothing = held_pins(connection, 0)
    engine.dispose()

    assert whole.pins == (Pin(key, at_ns - 4 * NS, at_ns + 13 * NS),)
    assert nothing.pins == ()


def test_requests_and_rollups_that_are_pinned_outlive_the_rest(where: str) -> None:
    at_ns, key = snapshot_at(where, 2)
    pins = Pins((Pin(key, at_ns - NS, at_ns + NS),))
    touching = {"key": key, "low": at_ns - NS, "high": at_ns + NS}
    requests = (
        "SELECT owner FROM requests WHERE run_key=:key AND arrived_at_ns<=:high"
        " AND ended_at_ns>=:low ORDER BY 1"
    )
    intervals = (
        "SELECT {} FROM {} WHERE run_key=:key AND tier_seconds=1 AND at_ns<=:high"
        " AND at_ns>:low-1000000000 ORDER BY 1, 2"
    )
    tables = {"rollups": "at_ns, repeats", "latencies": "at_ns, metric", "labelled": "at_ns, label"}
    asked = [requests, *(intervals.format(what, table) for table, what in tables.items())]
    before = [rows(where, query, **touching) for query in asked]

    engine = open_for_writing(parse_address(where))
    delete_requests(engine, key, UNENDED, pins)
    delete_intervals(engine, key, 1, UNENDED, pins)
    with engine.connect() as connection:
        assert oldest_row_ns(connection, Held.SECONDS, pins) is None
        assert oldest_row_ns(connection, Held.REQUESTS, pins) is None
    engine.dispose()

    assert [rows(where, query, **touching) for query in asked] == before
    assert all(before)
    for table, kept in zip(("requests", *tables), before, strict=True):
        tier = "" if table == "requests" else " AND tier_seconds=1"
        query = f"SELECT COUNT(*) FROM {table} WHERE run_key=:key{tier}"
        assert rows(where, query, key=key) == [(len(kept),)], table


def sliced(*sizes: int) -> Callable[[Pin], list[PinnedSlice]]:
    """Return slices of a pin, the newest first, each of 10 ns."""
    return lambda pin: [
        PinnedSlice(pin.end_at_ns - 10 * (number + 1), size) for number, size in enumerate(sizes)
    ]


def test_pins_that_overlap_are_one_and_the_newest_comes_first() -> None:
    pins = [Pin(1, 0, 100), Pin(1, 50, 200), Pin(1, 300, 400), Pin(2, 50, 60)]

    assert merged(pins) == [Pin(1, 300, 400), Pin(1, 0, 200), Pin(2, 50, 60)]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (100, [Pin(1, 300, 320), Pin(1, 0, 20)]),
        (40, [Pin(1, 300, 320), Pin(1, 0, 20)]),
        (39, [Pin(1, 300, 320), Pin(1, 10, 20)]),
        (20, [Pin(1, 300, 320)]),
        (19, [Pin(1, 310, 320)]),
        (9, []),
    ],
)
def test_beyond_the_limit_the_oldest_part_of_a_pin_is_given_up(limit: int, kept: list[Pin]) -> None:
    pins = [Pin(1, 300, 320), Pin(1, 0, 20)]

    assert within_limit(pins, sliced(10, 10), limit) == kept


def test_a_partition_is_touched_by_what_is_pinned_in_any_run() -> None:
    pins = Pins((Pin(3, 100, 200),))

    assert pins.touch(0, 101)
    assert pins.touch(200, 300)
    assert not pins.touch(0, 100)
    assert not pins.touch(201, 300)
