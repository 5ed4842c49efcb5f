"""An explanation as a plain document for JSON, and in words."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from engine.explain.explanation import Change, Explanation
from engine.explain.groups import TRAFFIC

Document = dict[str, Any]
WIDTH: Final = 32
TRAFFIC_NAMES: Final = tuple(group.name.lower() for group in TRAFFIC)


def explanation_document(explanation: Explanation) -> Document:
    """Return an explanation; `answer` is `explained`, `no_change` or `cannot_be_explained`.

    Times are seconds, speeds nanoseconds; `traffic_ratio` is what lengths and arrivals make of the
    change, null where nothing is explained.
    """
    of_traffic = [one.ratio for one in explanation.shares if one.group in TRAFFIC_NAMES]
    return {
        "answer": explanation.answer.value,
        "metric": "mean_ttft",
        "window_seconds": explanation.window_seconds,
        "recorded": asdict(explanation.recorded),
        "replayed": asdict(explanation.replayed),
        "fidelity": asdict(explanation.fidelity),
        "change": None if explanation.change is None else _change(explanation.change),
        "shares": [
            {
                "group": one.group,
                "label": one.label,
                "ratio": one.ratio,
                "is_beyond_chance": one.change.is_beyond_chance,
                **_change(one.change),
            }
            for one in explanation.shares
        ],
        "traffic_ratio": sum(of_traffic) if of_traffic else None,
        "speeds": [asdict(speeds) for speeds in explanation.speeds],
        "num_replays": explanation.num_replays,
        "why_not": explanation.why_not,
        "notes": list(explanation.notes),
    }


def explanation_lines(found: Mapping[str, Any]) -> list[str]:
    """Say an explanation's document."""
    lines = [f"why mean TTFT changed: {_headline(found)}"]
    for which in ("first", "second"):
        recorded, replayed = found["recorded"][which], found["replayed"][which]
        if recorded is not None and replayed is not None:
            lines.append(
                f"{which + ' side':{WIDTH}}{_seconds(recorded):>11} recorded,"
                f" {_seconds(replayed)} replayed: fidelity {found['fidelity'][which]:.0%}"
            )
    for share in found["shares"]:
        interval = f"{_seconds(share['low'])} to {_seconds(share['high'])}"
        chance = "" if share["is_beyond_chance"] else ", within chance"
        lines.append(
            f"{share['label']:{WIDTH}}{_seconds(share['seconds'], sign='+'):>11}"
            f"{share['ratio']:>7.0%}  ({interval}{chance})"
        )
    if found["shares"]:
        total = found["change"]["seconds"]
        lines.append(f"{'all of it':{WIDTH}}{_seconds(total, sign='+'):>11}{'100%':>7}")
    return lines + [f"not replayed: {note}" for note in found["notes"]]


def _headline(found: Mapping[str, Any]) -> str:
    if found["answer"] == "cannot_be_explained":
        return f"it cannot be explained, because {found['why_not']}"
    change = found["change"]
    told = f"{_seconds(change['seconds'], sign='+')} ({_seconds(change['low'])} to"
    told += f" {_seconds(change['high'])})"
    if found["answer"] == "no_change":
        return f"no change: {told} is within chance, or below a tenth"
    return f"{told}, over {found['num_replays']} replays of {found['window_seconds']:,.0f} s"


def _change(change: Change) -> Document:
    return {"seconds": change.seconds, "low": change.low, "high": change.high}


def _seconds(value: float, *, sign: str = "") -> str:
    return f"{value * 1e3:{sign}.3g} ms" if abs(value) < 1 else f"{value:{sign}.3g} s"
