"""When a refused client is told to come back, and from when a request's times count."""

import pytest

from engine.request import Request
from engine.server.request_times import RequestTimes
from engine.server.retry_after import RetryAfter
from kvpulse.events import RejectReason

MS = 1_000_000


class Seconds:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _after_ends(*times: float) -> tuple[RetryAfter, Seconds]:
    seconds = Seconds()
    retry_after = RetryAfter(closing_seconds=4, now_seconds=seconds)
    for time in times:
        seconds.now = time
        retry_after.note_end()
    return retry_after, seconds


def test_a_client_comes_back_when_half_of_the_queue_will_have_gone():
    retry_after, _ = _after_ends(100, 102, 104)  # one end in two seconds

    assert retry_after.seconds(RejectReason.QUEUE_FULL, num_running=99, num_waiting=10) == 10
    assert retry_after.seconds(RejectReason.POOL_TIMEOUT, num_running=99, num_waiting=3) == 3


def test_a_full_pool_empties_as_those_that_run_end():
    retry_after, _ = _after_ends(100, 102, 104)

    assert retry_after.seconds(RejectReason.ABOVE_WATERMARK, num_running=8, num_waiting=0) == 8


def test_while_nothing_ends_the_time_grows_up_to_what_clients_heed():
    retry_after, seconds = _after_ends(100, 102, 104)

    seconds.now = 110
    assert retry_after.seconds(RejectReason.QUEUE_FULL, num_running=1, num_waiting=10) == 25
    seconds.now = 10_000
    assert retry_after.seconds(RejectReason.QUEUE_FULL, num_running=1, num_waiting=10) == 60


@pytest.mark.parametrize("reason", [RejectReason.QUEUE_FULL, RejectReason.OUT_OF_MEMORY])
def test_nobody_is_told_to_come_back_at_once(reason):
    unknown, _ = _after_ends()
    quick, _ = _after_ends(100, 100.001, 100.002)

    assert unknown.seconds(reason, num_running=9, num_waiting=9) == 1
    assert quick.seconds(reason, num_running=0, num_waiting=0) == 1


def test_a_server_that_ends_is_gone_after_its_drain():
    retry_after, _ = _after_ends()

    assert retry_after.seconds(RejectReason.SHUTTING_DOWN, num_running=3, num_waiting=3) == 5


def test_the_limits_of_a_request_count_from_its_first_byte():
    times = RequestTimes(accepted_ns=1000 * MS, timeout_ns=500 * MS, queue_timeout_ns=50 * MS)

    request = times.apply(Request(), engine_ns=9000 * MS, now_ns=lambda: 1020 * MS)

    assert request.frontend_ns == 20 * MS
    assert request.deadline_ns == 9480 * MS
    assert request.queue_deadline_ns == 9030 * MS


def test_a_request_without_limits_has_no_deadline():
    request = RequestTimes(accepted_ns=5).apply(Request(), engine_ns=0, now_ns=lambda: 4)

    assert (request.frontend_ns, request.deadline_ns, request.queue_deadline_ns) == (0, 0, 0)


def test_a_deadline_on_a_young_clock_is_not_taken_for_none():
    times = RequestTimes(accepted_ns=0, timeout_ns=MS)

    request = times.apply(Request(), engine_ns=0, now_ns=lambda: 5 * MS)

    assert request.deadline_ns == 1
