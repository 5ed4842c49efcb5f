"""Telling a real receiver: signed, in order, again where it helps, and never in anybody's way."""

import logging
import random
import threading
import time
from collections.abc import Iterator

import pytest

from agent.live_view import LiveView
from agent.triage.incidents import IncidentChange
from agent.webhook.endpoint import Answer, Endpoint
from agent.webhook.message import Message
from agent.webhook.outcome import Outcome
from agent.webhook.sender import MOST_WAITING, Pace, WebhookSender
from tests.agent.webhook.factories_webhook import (
    KEY,
    Receiver,
    Waits,
    ends,
    leak_changes,
    receiving,
)
from tests.waiting import wait_until

MESSAGE = Message("msg_1", b"{}")


class Sending:
    """A sender to a receiver, on a clock that its own pauses move."""

    def __init__(self, receiver: Receiver, *, timeout_seconds: float = 5.0) -> None:
        self.view = LiveView(0)
        self.waits = Waits()
        endpoint = Endpoint(receiver.url, KEY, timeout_seconds)
        pace = Pace(self.waits.wall_seconds, self.waits.pause, random.Random(7))
        self.sender = WebhookSender(endpoint, self.view.note_webhook, pace=pace)

    def counts(self) -> dict[str, int]:
        told = self.view.snapshot().webhook or {}
        return {outcome.value: number for outcome, number in told.items() if number}

    def tell(self, changes: list[IncidentChange]) -> dict[str, int]:
        """Tell all of them and wait until each has ended somehow."""
        with self.sender:
            for change in changes:
                self.sender(change)
            wait_until(lambda: sum(self.counts().values()) == len(ends(changes)))
        return self.counts()


def test_both_ends_of_an_incident_arrive_in_order_and_signed() -> None:
    with receiving() as receiver:
        sending = Sending(receiver)

        counts = sending.tell(leak_changes())

    assert counts == {"delivered": 2}
    assert [told.document["type"] for told in receiver.told] == [
        "incident.opened",
        "incident.closed",
    ]
    assert all(told.is_authentic for told in receiver.told)
    assert receiver.told[0].headers["webhook-timestamp"] == "1790000000"
    assert receiver.told[0].headers["content-type"] == "application/json"


def test_a_signature_holds_for_its_own_body_id_and_time_only() -> None:
    with receiving() as receiver:
        Sending(receiver).tell(leak_changes())
    first, second = receiver.told

    for name in ("webhook-id", "webhook-timestamp"):
        first.headers.replace_header(name, first.headers[name] + "0")
        assert not first.is_authentic
        first.headers.replace_header(name, first.headers[name][:-1])
    assert first.is_authentic
    assert not type(first)(first.headers, second.body).is_authentic


@pytest.mark.parametrize("trouble", [500, 503, 429, "cut"])
def test_a_receiver_in_trouble_is_asked_again_with_growing_pauses(trouble: int | str) -> None:
    with receiving(trouble, trouble, trouble, 200) as receiver:
        sending = Sending(receiver)

        counts = sending.tell(ends(leak_changes())[:1])

    assert counts == {"delivered": 1}
    assert len({told.headers["webhook-id"] for told in receiver.told}) == 1
    stamps = [int(told.headers["webhook-timestamp"]) for told in receiver.told]
    assert stamps == sorted(stamps)
    assert stamps[-1] - stamps[0] == int(sending.waits.now) - 1_790_000_000
    assert all(told.is_authentic for told in receiver.told)
    for pause, whole in zip(sending.waits.pauses, (1, 2, 4), strict=True):
        assert 0.75 * whole <= pause <= whole
    assert len(set(sending.waits.pauses)) == 3


def test_after_ten_attempts_the_next_message_has_its_turn() -> None:
    with receiving(*[500] * 10, 200) as receiver:
        sending = Sending(receiver)

        counts = sending.tell(leak_changes())

    assert counts == {"failed": 1, "delivered": 1}
    assert len(receiver.told) == 11
    assert 150 < sum(sending.waits.pauses) < 250
    assert max(sending.waits.pauses) <= 60


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_who_says_no_is_not_asked_again(status: int) -> None:
    with receiving(status) as receiver:
        counts = Sending(receiver).tell(leak_changes())

    assert counts == {"refused": 2}
    assert len(receiver.told) == 2


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiving(status) as receiver:
        counts = Sending(receiver).tell(ends(leak_changes())[:1])

    assert counts == {"refused": 1}
    assert len(receiver.told) == 1


@pytest.mark.parametrize("answer", ["hold", "drip"])
def test_a_receiver_that_never_finishes_is_cut_off(answer: str) -> None:
    with receiving(answer) as receiver:
        began = time.monotonic()

        reply = Endpoint(receiver.url, KEY, timeout_seconds=0.3).post(MESSAGE, timestamp=1)

    assert reply.answer is Answer.LATER
    assert time.monotonic() - began < 3


def test_nobody_there_is_asked_again() -> None:
    with receiving() as receiver:
        url = receiver.url

    assert Endpoint(url, KEY).post(MESSAGE, timestamp=1).answer is Answer.LATER


@pytest.fixture
def slow() -> Iterator[Receiver]:
    with receiving("hold") as receiver:
        yield receiver


def test_a_full_queue_drops_counts_and_holds_up_nobody(slow: Receiver) -> None:
    sending = Sending(slow)
    (opened, _) = ends(leak_changes())
    with sending.sender:
        sending.sender(opened)
        wait_until(lambda: slow.told)  # the thread is busy with it

        began = time.monotonic()
        for _ in range(MOST_WAITING + 5):
            sending.sender(opened)
        took = time.monotonic() - began

        assert sending.counts() == {"dropped": 5}
        assert took < 1
        slow.answers[:] = [204]
        slow.hold.set()


def test_what_waits_at_the_end_is_tried_once_and_not_waited_for() -> None:
    opened, closed = ends(leak_changes())
    view = LiveView(0)
    with receiving(500) as receiver:
        with WebhookSender(Endpoint(receiver.url, KEY), view.note_webhook) as sender:
            sender(opened)
            wait_until(lambda: receiver.told)  # it pauses for about a second now
            sender(closed)

        assert [told.document["type"] for told in receiver.told] == [
            "incident.opened",
            "incident.closed",
        ]
    assert view.snapshot().webhook == {**dict.fromkeys(Outcome, 0), Outcome.FAILED: 2}


def test_neither_path_nor_key_is_ever_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), receiving(403) as receiver:
        sending = Sending(receiver)
        sending.tell(leak_changes())

    assert "it answered 403" in caplog.text
    assert f"http://127.0.0.1:{receiver.server_address[1]}" in caplog.text
    said = caplog.text + repr(sending.sender._endpoint) + repr(sending.view.snapshot())
    assert "secret-path" not in said
    assert KEY.decode() not in said


def test_trouble_is_said_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), receiving(403) as receiver:
        Sending(receiver).tell(leak_changes())

    assert len(caplog.records) == 1


def test_a_change_that_cannot_be_told_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    opened, closed = ends(leak_changes())
    broken = IncidentChange(opened.change, None)  # type: ignore[arg-type]
    with receiving() as receiver:
        counts = Sending(receiver).tell([broken, closed])

    assert counts == {"failed": 1, "delivered": 1}
    assert "the webhook failed by itself" in caplog.text


def test_its_thread_ends_with_the_block() -> None:
    with receiving() as receiver:
        Sending(receiver).tell(leak_changes())

    assert "kvpulse-webhook" not in {thread.name for thread in threading.enumerate()}


def test_every_outcome_is_a_count_from_the_start() -> None:
    with receiving() as receiver:
        sending = Sending(receiver)
        with sending.sender:
            assert sending.view.snapshot().webhook == dict.fromkeys(Outcome, 0)
