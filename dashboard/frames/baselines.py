"""Saved baselines as a table, and one of them in full."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from agent.baselines.metrics import JUDGED
from agent.baselines.traffic import Traffic
from agent.duration import duration_text
from agent.reads.baselines import BaselineRow, StoredBaseline
from dashboard.formats import NANOSECONDS, count, date_and_clock, moment, ratio
from dashboard.frames.comparison import (
    TRAFFIC,
    amount,
    settings_words,
    traffic_amount,
    window_words,
)
from dashboard.frames.status import capitalised

Column = list[str | float | datetime | None]
IN_A_LINE = ("model", "kv_format", "runner")


class Listed(NamedTuple):
    """A saved baseline and its traffic; None: its series cannot be read."""

    row: BaselineRow
    traffic: Traffic | None


def baselines_table(listed: Sequence[Listed]) -> dict[str, Column]:
    """Return the table's columns by heading."""
    rows = [one.row for one in listed]
    return {
        "Name": [row.name for row in rows],
        "Engine": [row.engine for row in rows],
        "From": [moment(row.start_at_ns) for row in rows],
        "Length": [duration_text((row.end_at_ns - row.start_at_ns) / NANOSECONDS) for row in rows],
        "Recorded": [row.completeness.counted_ratio for row in rows],
        "Configuration": [short_settings(row.fingerprint) for row in rows],
        "Arrivals": [getattr(one.traffic, "arrival_rate", None) for one in listed],
        "Prompt": [getattr(one.traffic, "prompt_tokens", None) for one in listed],
        "Output": [getattr(one.traffic, "output_tokens", None) for one in listed],
        "TTFT p95": [row.figures.get("ttft_p95") for row in rows],
        "Inter-token p50": [in_ms(row.figures.get("inter_token_p50")) for row in rows],
    }


def short_settings(fingerprint: Mapping[str, object]) -> str:
    """Return the settings by which people tell engines apart."""
    parts = [str(fingerprint[name]) for name in IN_A_LINE if fingerprint.get(name)]
    blocks = fingerprint.get("total_blocks")
    if isinstance(blocks, int | float):
        parts.append(f"{count(blocks)} blocks")
    return " · ".join(parts)


def baseline_facts(stored: StoredBaseline) -> list[tuple[str, str | None]]:
    """Return window, completeness, figures and traffic of one baseline."""
    row, traffic = stored.row, stored.side.traffic
    complete = row.completeness
    left_out = complete.num_not_recorded + complete.num_in_gaps
    figures = [
        (capitalised(metric.label), known(row.figures.get(metric.name), metric.unit))
        for metric in JUDGED
    ]
    asked = [
        (label, None if value is None else traffic_amount(name, value))
        for name, label in TRAFFIC.items()
        for value in [getattr(traffic, name)]
    ]
    return [
        ("Engine", row.engine),
        ("Window", window_words(row.start_at_ns, row.end_at_ns)),
        ("Saved", date_and_clock(row.saved_at_ns)),
        (
            "Recorded",
            f"{ratio(complete.counted_ratio)}; {count(left_out)} of"
            f" {count(complete.num_intervals)} intervals of {row.tier_seconds} s left out,"
            f" {count(complete.events_lost)} events lost",
        ),
        *figures,
        *asked,
        ("Configuration", settings_words(row.fingerprint) or None),
    ]


def in_ms(value: float | None) -> float | None:
    """Turn seconds into milliseconds; None stays None."""
    return None if value is None else value * 1e3


def known(value: float | None, unit: str) -> str | None:
    """Write a value; None where nobody measured it."""
    return None if value is None else amount(value, unit)


def at_utc(naive: datetime) -> int:
    """Return the nanoseconds since 1970 of a time that a person gave in UTC."""
    return int(naive.replace(tzinfo=UTC).timestamp()) * NANOSECONDS
