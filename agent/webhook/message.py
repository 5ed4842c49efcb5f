"""What is told of an incident: one JSON document, and an id that all attempts share. Pure."""

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from agent.triage.incidents import Change, Incident, IncidentChange
from agent.triage.report import finding_document, iso

NS: Final = 1_000_000_000
MOST_VALUES: Final = 100  # of one list of evidence, such as leaked blocks; their number is told
TYPES: Final = {Change.OPENED: "incident.opened", Change.CLOSED: "incident.closed"}


@dataclass(frozen=True, slots=True)
class Message:
    """One thing to be told.

    Attributes:
        id: The same each time the same change of the same incident is told, so that a receiver
            can leave out what it has had.
        body: JSON, UTF-8.
    """

    id: str
    body: bytes


def message_of(change: IncidentChange) -> Message | None:
    """Return what is told of a change; None where nothing is: only the ends of an incident are."""
    kind = TYPES.get(change.change)
    if kind is None:
        return None
    incident = change.incident
    at_ns = incident.closed_at_ns or incident.seen_at_ns
    document = {"type": kind, "timestamp": iso(at_ns), "data": _document(incident)}
    return Message(_id(kind, incident), json.dumps(document, separators=(",", ":")).encode())


def _id(kind: str, incident: Incident) -> str:
    # The key of its row is not enough: agents with stores of their own may tell one receiver.
    opening = f"{incident.opened_as.value}\n{incident.opened_at_ns}"
    named = f"{incident.engine}\n{incident.run_id}\n{opening}\n{kind}"
    return "msg_" + blake2b(named.encode(), digest_size=16).hexdigest()


def _document(incident: Incident) -> dict[str, Any]:
    closed_at_ns = incident.closed_at_ns
    seconds = None if closed_at_ns is None else (closed_at_ns - incident.opened_at_ns) / NS
    finding = finding_document(incident.finding)
    diagnosis = incident.diagnosis
    return {
        "incident": incident.key,
        "engine": incident.engine,
        "run_id": incident.run_id,
        "opened_at": iso(incident.opened_at_ns),
        "closed_at": None if closed_at_ns is None else iso(closed_at_ns),
        "close_reason": None if incident.close_reason is None else incident.close_reason.value,
        "duration_seconds": None if seconds is None else round(seconds, 3),
        "opened_as": incident.opened_as.value,
        **finding,
        "evidence": [_bounded(each) for each in finding["evidence"]],
        "contributing": [
            each.verdict.value
            for each in (diagnosis.headline, *diagnosis.contributing)
            if each.verdict is not incident.verdict
        ],
    }


def _bounded(evidence: dict[str, Any]) -> dict[str, Any]:
    value = evidence["value"]
    if not isinstance(value, list) or len(value) <= MOST_VALUES:
        return evidence
    return {**evidence, "value": value[:MOST_VALUES], "num_values": len(value)}
