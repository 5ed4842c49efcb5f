"""Baselines and comparisons in words, out of the documents that the agent's API answers with."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from agent.baselines.metrics import JUDGED
from agent.duration import duration_text

Document = Mapping[str, Any]
NOT_MEASURED: Final = "-"
HEADLINES: Final = {
    "better": "BETTER: {second} is better than {first}",
    "same": "SAME: no change found between {first} and {second}",
    "worse": "WORSE: {second} is worse than {first}",
    "unknown": "UNKNOWN: {second} against {first} cannot be told",
}


def comparison_lines(comparison: Document) -> list[str]:
    """Say a comparison: the answer, its metrics, and what stands beside them."""
    first, second = comparison["first"], comparison["second"]
    names = {"first": first["label"], "second": second["label"]}
    lines = [HEADLINES[comparison["answer"]].format(**names)]
    lines += [f"  because {reason}" for reason in comparison["why_unknown"]]
    lines += ["", f"{'judged':28}{'first':>11}{'second':>11}{'change':>9}  answer"]
    for metric in comparison["metrics"]:
        lines += _finding_lines(metric)
    lines += ["", f"{'shown, not judged':28}{'first':>11}{'second':>11}"]
    lines += [
        f"{figure['label']:28}{_value(figure['first'], figure['unit']):>11}"
        f"{_value(figure['second'], figure['unit']):>11}"
        for figure in comparison["shown"]
    ]
    lines += ["", *where_lines(comparison["where"])]
    if "why" in comparison:
        lines += ["", *comparison["why"]["text"]]
    lines += ["", *(_traffic_line(name, first, second) for name in TRAFFIC_LABELS)]
    lines += [
        f"traffic differs: {one['label']} {one['first']:.4g}, then {one['second']:.4g}"
        for one in comparison["traffic_differences"]
    ]
    lines += [
        f"configuration differs: {one['name']} {one['first']!r}, then {one['second']!r}"
        for one in comparison["config_differences"]
    ] or ["configuration: the same on both sides"]
    return [*lines, *_beside(first), *_beside(second)]


def where_lines(where: Document) -> list[str]:
    """Say in which waits the mean TTFT changed."""
    if where["total"] is None:
        return [f"where TTFT changed: not available; {where['why_not']}"]
    first, second = where["first"]["num_requests"], where["second"]["num_requests"]
    head = f"{'where mean TTFT changed':28}{'first':>11}{'second':>11}{'change':>11}"
    exact = f"  exact over {first:,} and {second:,} requests"
    return [head + exact, *(_where_line(one) for one in (*where["parts"], where["total"]))]


def baseline_lines(baseline: Document) -> list[str]:
    """Say what a baseline holds."""
    lines = _beside(baseline)
    labels = {metric.name: (metric.label, metric.unit) for metric in JUDGED}
    for name, value in baseline["figures"].items():
        label, unit = labels.get(name, (name, ""))
        lines.append(f"  {label:28}{_value(value, unit):>11}")
    traffic = baseline["traffic"]
    lines += [
        f"  {label:28}{_value(traffic[name], ''):>11}" for name, label in TRAFFIC_LABELS.items()
    ]
    settings = sorted(baseline["fingerprint"].items())
    return [*lines, "  " + ", ".join(f"{name}={value}" for name, value in settings)]


def list_lines(baselines: Sequence[Document]) -> list[str]:
    """Say what is saved, one line each."""
    if not baselines:
        return ["nothing is saved; `kvpulse baseline save NAME` saves the last 4 hours"]
    return [
        f"{one['name']:24} {one['engine']:16} {_time(one['start_ns'])}"
        f" {duration_text((one['end_ns'] - one['start_ns']) / 1e9):>6}"
        f"  {one['counted_ratio']:.0%} recorded"
        for one in baselines
    ]


TRAFFIC_LABELS: Final = {
    "arrival_rate": "arrivals per second",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "prefix_hit_share": "prefix hit share",
}


def _finding_lines(metric: Document) -> list[str]:
    unit, ratio = metric["unit"], metric["change_ratio"]
    change = NOT_MEASURED if ratio is None else f"{ratio:+z.0%}"
    line = (
        f"{metric['label']:28}{_value(metric['first'], unit):>11}"
        f"{_value(metric['second'], unit):>11}{change:>9}  {metric['answer']}"
    )
    if metric["why_unknown"]:
        return [line, f"{'':28}{metric['why_unknown']}"]
    if metric["low"] is None:
        return [line]
    seen = metric["smallest_seen"]
    smallest = "no change, however large," if seen is None else f"one of {_value(seen, unit)}"
    interval = f"{_value(metric['low'], unit)} to {_value(metric['high'], unit)}"
    return [line, f"{'':28}change {interval}; {smallest} would have been seen"]


def _where_line(part: Document) -> str:
    first, second = _value(part["first"], "s"), _value(part["second"], "s")
    change = _value(part["change"], "s")
    sign = "" if part["change"] <= 0 else "+"
    return f"{part['label']:28}{first:>11}{second:>11}{sign + change:>11}"


def _traffic_line(name: str, first: Document, second: Document) -> str:
    a, b = first["traffic"][name], second["traffic"][name]
    return f"{TRAFFIC_LABELS[name]:28}{_value(a, ''):>11}{_value(b, ''):>11}"


def _beside(side: Document) -> list[str]:
    complete = side["completeness"]
    hours = duration_text((side["end_ns"] - side["start_ns"]) / 1e9)
    return [
        f"{side['label']}: {side['engine']}, {hours} from {_time(side['start_ns'])};"
        f" {complete['counted_ratio']:.0%} recorded"
        f" ({complete['num_not_recorded']} of {complete['num_intervals']} intervals of"
        f" {side['tier_seconds']} s not recorded, {complete['num_in_gaps']} with losses,"
        f" {complete['events_lost']} events lost)"
    ]


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return NOT_MEASURED
    if unit == "s":
        return f"{value * 1e3:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    return f"{value:.4g}{' ' + unit if unit else ''}"


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
