"""Whatever an engine hands over, recording goes on and the count stays exact."""

import pytest

from kvpulse.events import Kind
from kvpulse.stream_values import GapReason
from tests.kvpulse.factories_journal import added, batches, stored_and_lost


class Unsized:
    """Ids that cannot even be counted."""

    def __len__(self):
        raise RuntimeError("no length")

    def __iter__(self):
        raise RuntimeError("no items")

    __str__ = __len__


class Untrue:
    """A flag that cannot be asked."""

    def __bool__(self):
        raise RuntimeError("no truth")


WRONG_CALLS = [
    ("admit", (-1,), Kind.ADMIT, 1),
    ("admit", ("seven",), Kind.ADMIT, 1),
    ("admit", (1, 70_000), Kind.ADMIT, 1),
    ("wait", (1, 2, 256), Kind.WAIT, 1),
    ("allocate", (1, [-1]), Kind.ALLOCATE, 1),
    ("allocate", (1, [1, 2, 2**32]), Kind.ALLOCATE, 3),
    ("allocate", (1, None), Kind.ALLOCATE, 1),
    ("allocate", (None, [4, 5]), Kind.ALLOCATE, 2),
    ("share", (1, [1, "x"], 2), Kind.SHARE, 2),
    ("free", (1, [1, 2], 2**40, 1), Kind.FREE, 2),
    ("copy_on_write", (1, [1, 2, None, 4]), Kind.COPY_ON_WRITE, 2),
    ("cache", (1, [1, 2], [3]), Kind.CACHE, 2),
    ("cache", (1, [1, 2], [3, 2**64]), Kind.CACHE, 2),
    ("arrive", (1, 2**32, 1), Kind.ARRIVE, 1),
    ("finish", (1, 1, 1, 1, -1, 1), Kind.FINISH, 1),
    ("step", (1, 1, 1, 1, 1, 1, -1, 1, 1), Kind.STEP, 1),
    ("step", (1.5, 1, 1, 1, 1, 1, 1, 1, 1), Kind.STEP, 1),
    ("step", (None, 1, 1, 1, 1, 1, 1, 1, 1), Kind.STEP, 1),
    ("free", (1, [1, 2], 0, None, 0, True), Kind.FREE, 2),
    ("share", (1, Unsized(), 1), Kind.SHARE, 1),
    ("allocate", (1, [1, 2], 0, Untrue()), Kind.ALLOCATE, 2),
    ("share", (1, [1, 2], 2, 0, Untrue()), Kind.SHARE, 2),
    ("free", (1, [1, 2], 0, 1, 0, Untrue()), Kind.FREE, 2),
    ("wait", (1, 2, 3, Untrue()), Kind.WAIT, 1),
    ("prefix_hit", (1, 2, 3, Untrue()), Kind.PREFIX_HIT, 1),
    ("first_token", (1, Untrue()), Kind.FIRST_TOKEN, 1),
    ("pool", (1, 1, 1, 1, 1, 1, 1, 1, Untrue()), Kind.POOL, 1),
    ("pool", (1, 1, 1, 1, 1, 2**64), Kind.POOL, 1),
    ("heartbeat", (1, "many", 1), Kind.HEARTBEAT, 1),
    ("config", ({"x": "y" * 9000},), Kind.CONFIG, 1),
]


@pytest.mark.parametrize(("name", "arguments", "kind", "events"), WRONG_CALLS)
def test_values_that_do_not_fit_are_counted_and_the_stream_goes_on(
    record, name, arguments, kind, events
):
    recorder = record()
    recorder.admit(5)

    getattr(recorder, name)(*arguments)

    recorder.allocate(6, [7, 8])
    recorder.close()
    read = batches(recorder.directory)
    stored, lost = stored_and_lost(read)
    assert lost == {kind: events}
    assert recorder.not_written() == {kind: events}
    assert added(stored, lost) == recorder.emitted()
    assert read[-1].records["owner"][-1] == 6
    assert [batch.gap.reason for batch in read if batch.gap] == [GapReason.NOT_WRITTEN]


def test_a_clock_that_fails_costs_the_events_it_fails_for(record):
    broken = False

    def clock():
        if broken:
            raise OSError("no clock")
        return 5

    recorder = record(clock=clock)
    broken = True
    recorder.admit(1)
    recorder.heartbeat(1, 1, 1)
    broken = False
    recorder.admit(2)
    recorder.close()

    stored, lost = stored_and_lost(batches(recorder.directory))
    assert lost == {Kind.ADMIT: 1, Kind.HEARTBEAT: 1}
    assert added(stored, lost) == recorder.emitted()


def test_an_alias_that_cannot_be_told_is_no_tenant(record):
    assert record().tenant(Unsized()) == 0


def test_nothing_is_recorded_for_no_ids(record):
    recorder = record()

    recorder.allocate(1, [])
    recorder.copy_on_write(1, [])
    recorder.cache(1, [], [])
    recorder.evict([])
    recorder.close()

    assert stored_and_lost(batches(recorder.directory))[0] == {Kind.KEYFRAME: 1}


def test_numpy_ids_and_ranges_are_taken_like_lists(record):
    np = pytest.importorskip("numpy", reason="no numpy: make setup installs it")
    recorder = record()

    recorder.allocate(1, np.array([4], dtype=np.int64))
    recorder.allocate(1, np.array([5, 6], dtype=np.uint32))
    recorder.allocate(1, range(7, 9))
    recorder.close()

    stored, lost = stored_and_lost(batches(recorder.directory))
    assert stored[Kind.ALLOCATE] == 5
    assert lost == {}
