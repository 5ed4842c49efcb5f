"""Both writers leave the same bytes behind, whatever they are given."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvpulse.emitter_choice import Emitter, is_built
from kvpulse.recorder import Recorder
from tests.kvpulse.factories_calls import Call, Odd, calls
from tests.kvpulse.factories_journal import TickingClock
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not is_built(), reason="the C emitter was not built: no C compiler or no Python headers"
)

SEGMENT_BYTES = 8192
BLOCKS = 3
numbers = itertools.count()


class FailingClock(TickingClock):
    """A clock whose every seventh look fails, each time in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def __call__(self):
        self.looks += 1
        if self.looks % 7:
            return super().__call__()
        wrong = [-1, 2**64, None, 1.5, Odd(9), OSError("no clock")][self.looks // 7 % 6]
        if isinstance(wrong, OSError):
            raise wrong
        return wrong


def open_both(folder: Path, clock: Callable[[], TickingClock]) -> list[Recorder]:
    return [
        Recorder.open(
            folder / str(name),
            "engine-a",
            total_blocks=BLOCKS,
            block_size=16,
            clock=clock(),
            wall_clock=TickingClock(),
            segment_bytes=SEGMENT_BYTES,
            run_id="run",
            emitter=name,
        )
        for name in Emitter
    ]


def wrap_soon(recorder: Recorder) -> None:
    """Let the low 32 bits of the numbers wrap three records from now."""
    if recorder._segment is not None:
        recorder._base = 2**32 - 3 - recorder._index
        recorder._aim()


def make(recorder: Recorder, call: Call) -> list[str]:
    """Make a call so often as it says; return what it raised."""
    raised = []
    for _ in range(call.times):
        wait_until(lambda: recorder._reserver.ready is not None)
        try:
            if call.name == "_wrap_soon":
                wrap_soon(recorder)
            else:
                getattr(recorder, call.name)(*call.arguments, **call.named)
        except TypeError as error:
            raised.append(str(error))
    return raised


def files(recorder: Recorder) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in recorder.directory.iterdir()
        if path.suffix == ".seg" or path.name == "loss"
    }


def compare(folder: Path, sequence: list[Call], clock: Callable[[], TickingClock]) -> None:
    python, compiled = open_both(folder / str(next(numbers)), clock)
    try:
        assert (python.emitter, compiled.emitter) == ("python", "c")
        for call in sequence:
            assert make(python, call) == make(compiled, call), call
            assert (python._index, python._word) == (compiled._index, compiled._word), call
        assert python.emitted() == compiled.emitted()
        assert python.not_written() == compiled.not_written()
        assert python.missing_keyframes == compiled.missing_keyframes
    finally:
        python.close()
        compiled.close()
    expected, found = files(python), files(compiled)
    assert sorted(expected) == sorted(found)
    assert [name for name in expected if expected[name] != found[name]] == []


EVERY_PLAIN_CALL = [
    Call("allocate", (1, [2]), {}),
    Call("allocate", (1, [2, 3]), {"host": True}),
    Call("share", (1, (2, 3), 2), {"tenant": 4}),
    Call("free", (1, [2], 0, 1), {}),
    Call("free", (1, [2, 3], 0, 2, 0, True), {}),
    Call("copy_on_write", (1, [2, 3, 4, 5]), {}),
    Call("swap_out", (1, [2, 3]), {}),
    Call("swap_in", (1, [2, 3], 7), {}),
    Call("cache", (1, [2], [2**64 - 1]), {}),
    Call("cache", (1, [2, 3], [2**40, 5]), {}),
    Call("evict", ([2],), {}),
    Call("evict", ([2, 3], 2, 9, 1), {}),
    Call("hold", (1, [2, 3], 1, 500), {}),
    Call("allocate_failed", (1, 2, 3, 4, 5), {}),
    Call("wait", (1, 2, 3), {}),
    Call("wait", (1, 2, 3, 4), {"tenant": 5}),
    Call("admit", (1,), {}),
    Call("reject", (1, 2, 3, 4), {}),
    Call("prefix_hit", (1, 2, 3, True), {}),
    Call("preempt", (1, 2, 3, 4, 5, 6), {}),
    Call("resume", (1, 2), {}),
    Call("fork", (1, 2), {}),
    Call("first_token", (1,), {}),
    Call("finish", (1, 2, 3, 4, 5, 6, 7), {}),
    Call("step", (2**40 + 1, 2, 3, 4, 5, 6, 2**50, 8, 9), {}),
    Call("pool", (1, 2, 3, 4, 5, 2**64 - 1), {}),
    Call("pool", (1, 2, 3, 4, 5, 6, 7, None, True), {}),
]


def tenant(alias: str) -> Call:
    return Call("tenant", (alias,), {})


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sequence=st.lists(calls, max_size=25))
@example(sequence=EVERY_PLAIN_CALL)
@example(sequence=[Call("_wrap_soon", (), {}), *EVERY_PLAIN_CALL])
@example(sequence=[call._replace(times=30) for call in EVERY_PLAIN_CALL])
def test_both_writers_leave_the_same_bytes(tmp_path, sequence):
    compare(tmp_path, sequence, TickingClock)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sequence=st.lists(calls, max_size=12))
@example(sequence=EVERY_PLAIN_CALL)
@example(sequence=[*map(tenant, "abcdefghi"), Call("pause_writing", (), {})])
def test_they_agree_also_when_the_clock_fails(tmp_path, sequence):
    compare(tmp_path, sequence, FailingClock)


def test_plain_calls_never_need_the_python_method(tmp_path, monkeypatch):
    from kvpulse.compiled_recorder import HOT_METHODS

    python, compiled = open_both(tmp_path, TickingClock)
    asked = []
    for name in HOT_METHODS:
        monkeypatch.setattr(
            type(compiled), f"_python_{name}", lambda *_, name=name, **__: asked.append(name)
        )

    for call in EVERY_PLAIN_CALL:
        make(compiled, call)

    compiled.close()
    python.close()
    assert asked == []
    assert {call.name for call in EVERY_PLAIN_CALL} == set(HOT_METHODS)
