"""An incident as JSON: what the API, the command and the bundle say. The keys are API."""

from agent.reads.incidents import IncidentRow, StoredIncident
from agent.triage.report import as_json, runbook_of
from agent.triage.verdicts import Verdict

Document = dict[str, object]


def row_document(row: IncidentRow) -> Document:
    """Return what a list shows of an incident; times are wall ns UTC."""
    return {
        "id": row.key,
        "engine": row.engine,
        "run_id": row.run_id,
        "verdict": row.verdict,
        "opened_as": row.opened_as,
        "is_open": row.is_open,
        "opened_ns": row.opened_at_ns,
        "seen_ns": row.seen_at_ns,
        "updated_ns": row.updated_at_ns,
        "closed_ns": row.closed_at_ns,
        "close_reason": row.close_reason,
        "confidence": row.confidence,
        "action": row.action,
        "summary": row.summary,
        "peak_ns": row.peak_at_ns,
        "peak_impact_sequences": round(row.peak_impact, 3),
        "runbook": runbook_of(Verdict(row.verdict)),
        "acknowledgement": None
        if row.acknowledged_at_ns is None
        else {
            "by": row.acknowledged_by,
            "at_ns": row.acknowledged_at_ns,
            "note": row.acknowledged_note,
        },
    }


def incident_document(stored: StoredIncident) -> Document:
    """Return an incident with the diagnosis that opened it and the newest one."""
    return {
        **row_document(stored.row),
        "opening": as_json(stored.opening),
        "diagnosis": as_json(stored.diagnosis),
    }
