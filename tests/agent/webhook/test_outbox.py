"""What was not told is told later: after a restart of the agent, after the receiver's return."""

import logging
from pathlib import Path

import pytest

from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.store.connection import parse_address
from agent.triage.incidents import Change, IncidentChange
from agent.webhook.endpoint import Endpoint
from agent.webhook.outbox import StoreOutbox
from agent.webhook.sender import WebhookSender
from tests.agent.factories_store import NS, empty_store
from tests.agent.incidents.factories_incidents import AT, closed, opened, store_run, write
from tests.agent.webhook.factories_webhook import KEY, Receiver, receiving
from tests.waiting import wait_until

NOW = AT + 60 * NS
DAY = 86_400 * NS


@pytest.fixture
def where(tmp_path: Path) -> str:
    return empty_store(tmp_path)


def outbox(where: str, now_ns: int = NOW) -> StoreOutbox:
    return StoreOutbox(parse_address(where), lambda: now_ns)


def told(changes: list[IncidentChange]) -> list[tuple[Change, int | None]]:
    return [(change.change, change.incident.key) for change in changes]


def untold(where: str, now_ns: int = NOW) -> list[IncidentChange]:
    box = outbox(where, now_ns)
    try:
        return list(box.untold())
    finally:
        box.close()


def note(where: str, change: IncidentChange) -> None:
    box = outbox(where)
    box.note(change)
    box.close()


def test_each_end_is_to_be_told_until_it_was(where: str) -> None:
    (first,) = write(where, store_run(where), opened())

    assert told(untold(where)) == [(Change.OPENED, 1)]
    note(where, first)
    assert untold(where) == []

    (last,) = write(where, store_run(where), closed(AT + 40 * NS))
    assert told(untold(where)) == [(Change.CLOSED, 1)]
    note(where, last)
    assert untold(where) == []


def test_an_incident_that_came_and_went_untold_is_told_as_it_was_at_first_and_at_last(
    where: str,
) -> None:
    run_key = store_run(where)
    write(where, run_key, opened())
    write(where, run_key, closed(AT + 40 * NS))

    first, last = untold(where)

    assert told([first, last]) == [(Change.OPENED, 1), (Change.CLOSED, 1)]
    assert (first.incident.closed_at_ns, first.incident.close_reason) == (None, None)
    assert first.incident.diagnosis == first.incident.opening
    assert last.incident.closed_at_ns == AT + 40 * NS


def test_what_is_older_than_a_day_is_told_to_nobody(where: str) -> None:
    write(where, store_run(where), opened())

    assert len(untold(where, AT + DAY)) == 1
    assert untold(where, AT + DAY + 31 * NS) == []


def send(receiver: Receiver, where: str, *changes: IncidentChange) -> None:
    """Tell what there is to tell, as one agent does between its start and its end."""
    number = len(receiver.told)
    endpoint = Endpoint(receiver.url, KEY)
    with WebhookSender(endpoint, LiveView(0).note_webhook, outbox=outbox(where)) as sender:
        for change in changes:
            sender(change)
        wait_until(lambda: len(receiver.told) > number)


def test_an_agent_tells_what_a_former_one_could_not_under_the_same_id(where: str) -> None:
    write(where, store_run(where), opened())
    with receiving(500, 204) as receiver:
        send(receiver, where)
        send(receiver, where)

    first, second = receiver.told
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert (first.document["data"]["incident"], first.body) == (1, second.body)
    assert untold(where) == []


def test_what_is_in_the_store_and_is_reported_as_well_is_told_once(where: str) -> None:
    (change,) = write(where, store_run(where), opened())
    with receiving() as receiver:
        send(receiver, where, change)

        assert len(receiver.told) == 1


def test_what_the_receiver_refuses_is_not_told_again(where: str) -> None:
    (change,) = write(where, store_run(where), opened())
    with receiving(403) as receiver:
        send(receiver, where, change)

    assert untold(where) == []


def test_a_store_in_trouble_does_not_keep_the_message_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = empty_store(tmp_path)
    (change,) = write(where, store_run(where), opened())
    missing = str(tmp_path / "a" / "file")
    (tmp_path / "a").write_text("no folder")
    limit = OncePerHour(lambda: 0.0)
    view = LiveView(0)
    with caplog.at_level(logging.INFO), receiving() as receiver:
        endpoint = Endpoint(receiver.url, KEY)
        box = outbox(missing)
        with WebhookSender(endpoint, view.note_webhook, outbox=box, log_limit=limit) as sender:
            sender(change)
            wait_until(lambda: receiver.told)

    assert "webhook: " in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
