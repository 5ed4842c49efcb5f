"""What is told of an incident: everything that whoever is on call needs, nothing of a prompt."""

import json
from dataclasses import replace

from agent.triage.verdicts import Evidence, Verdict
from agent.webhook.message import message_of
from tests.agent.factories_facts import END, NS
from tests.agent.webhook.factories_webhook import ends, leak_changes


def test_an_opening_tells_verdict_evidence_with_units_action_and_runbook() -> None:
    opened, _ = ends(leak_changes())

    message = message_of(opened)

    assert message is not None
    document = json.loads(message.body)
    data = document["data"]
    assert document["type"] == "incident.opened"
    assert document["timestamp"] == "2026-09-21T14:13:30.000+00:00"
    assert (data["engine"], data["run_id"]) == ("engine-a", "run-1")
    assert (data["opened_at"], data["closed_at"]) == ("2026-09-21T14:13:20.000+00:00", None)
    assert (data["verdict"], data["confidence"], data["action"]) == (
        "pool_leak",
        "high",
        "fix_code",
    )
    assert data["runbook"] == "docs/runbook.md#pool_leak"
    blocks = next(each for each in data["evidence"] if each["name"] == "leaked_blocks")
    assert (blocks["value"], blocks["unit"]) == ([3, 4], "block ids")
    assert (blocks["text"], blocks["end_ns"]) == ("2 blocks leaked: 3, 4", END)


def test_a_closing_tells_when_and_how_long_it_lasted() -> None:
    _, closed = ends(leak_changes())

    message = message_of(closed)

    assert message is not None
    document = json.loads(message.body)
    assert document["type"] == "incident.closed"
    assert document["data"]["closed_at"] == "2026-09-21T14:13:40.000+00:00"
    assert document["data"]["duration_seconds"] == 20.0
    assert document["data"]["close_reason"] == "cleared"
    assert (document["data"]["verdict"], document["data"]["opened_as"]) == ("pool_leak",) * 2


def test_nothing_is_told_of_an_update() -> None:
    changes = leak_changes()
    updates = [change for change in changes if change not in ends(changes)]

    assert updates
    assert [message_of(change) for change in updates] == [None] * len(updates)


def test_every_attempt_at_one_change_has_one_id_and_no_two_changes_share_one() -> None:
    opened, closed = ends(leak_changes())
    other = replace(opened, incident=replace(opened.incident, opened_as=Verdict.UNKNOWN))
    elsewhere = replace(opened, incident=replace(opened.incident, engine="engine-b"))

    found = [message_of(each) for each in (opened, opened, closed, other, elsewhere)]

    ids = [message.id for message in found if message is not None]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4


def test_a_long_list_is_cut_and_its_length_told() -> None:
    opened, _ = ends(leak_changes())
    many = Evidence("leaked_blocks", list(range(70_000)), "block ids", "many", None, END + NS)
    finding = replace(opened.incident.finding, evidence=(many,))

    message = message_of(replace(opened, incident=replace(opened.incident, finding=finding)))

    assert message is not None
    (evidence,) = json.loads(message.body)["data"]["evidence"]
    assert (len(evidence["value"]), evidence["num_values"]) == (100, 70_000)
    assert len(message.body) < 8_192
