"""Baselines and comparisons as plain documents for JSON; what is not known is null."""

import math
from dataclasses import asdict

from agent.baselines.comparison import Comparison, Finding, ShownFigure
from agent.baselines.side import Side
from agent.baselines.where import SplitMean, Where

Document = dict[str, object]


def comparison_document(comparison: Comparison) -> Document:
    """Return a comparison; `answer` is the one word of it."""
    return {
        "answer": comparison.answer.value,
        "measured": comparison.measured.value,
        "if_explained": comparison.if_explained.value,
        "why_unknown": list(comparison.why_unknown),
        "metrics": [_finding(finding) for finding in comparison.findings],
        "shown": [_shown(figure) for figure in comparison.shown],
        "where": _where(comparison.where),
        "traffic_differences": [asdict(one) for one in comparison.traffic_differences],
        "config_differences": [asdict(one) for one in comparison.config_differences],
        "first": side_document(comparison.first),
        "second": side_document(comparison.second),
    }


def side_document(side: Side) -> Document:
    """Return what stands beside a side's figures."""
    series, completeness = side.series, side.completeness
    return {
        "label": side.label,
        "engine": side.engine,
        "start_ns": series.start_ns,
        "end_ns": series.end_ns,
        "tier_seconds": series.tier_seconds,
        "completeness": {**asdict(completeness), "counted_ratio": completeness.counted_ratio},
        "traffic": asdict(side.traffic),
        "fingerprint": dict(side.fingerprint),
    }


def _finding(finding: Finding) -> Document:
    first, second = finding.first, finding.second
    change = None if first is None or second is None else second - first
    return {
        "name": finding.name,
        "label": finding.label,
        "unit": finding.unit,
        "answer": finding.answer.value,
        "first": first,
        "second": second,
        "change": change,
        "change_ratio": change / first if change is not None and first else None,
        "low": _finite(finding.low),
        "high": _finite(finding.high),
        "floor": finding.floor,
        "smallest_seen": _finite(finding.smallest_seen),
        "block_seconds": finding.block_seconds,
        "why_unknown": finding.why_unknown,
    }


def _where(where: Where) -> Document:
    return {
        "total": None if where.total is None else asdict(where.total),
        "parts": [asdict(part) for part in where.parts],
        "first": _split_mean(where.first),
        "second": _split_mean(where.second),
        "why_not": where.why_not,
    }


def _split_mean(side: SplitMean | None) -> Document | None:
    return None if side is None else {**asdict(side), "total_ns": side.total_ns}


def _shown(figure: ShownFigure) -> Document:
    return asdict(figure)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
