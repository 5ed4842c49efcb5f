"""A comparison as a page shows it: words, and where each interval stands on one common scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.duration import duration_text
from dashboard.formats import NOT_MEASURED, count, date_and_clock, moment, ratio, seconds, words
from dashboard.frames.status import Status, Tone, capitalised

Document = Mapping[str, Any]
# How far the scale may reach to either side of its middle, in parts of the first side's value.
REACHES: Final = (0.25, 0.5, 1.0)
HEADLINES: Final = {
    "better": ("Better: {second} is better than {first}", Tone.GOOD),
    "same": ("Same: no change found between {first} and {second}", Tone.GOOD),
    "worse": ("Worse: {second} is worse than {first}", Tone.BAD),
    "unknown": ("Unknown: {second} against {first} cannot be told", Tone.UNKNOWN),
}
TRAFFIC: Final = {
    "arrival_rate": "Arrivals per second",
    "prompt_tokens": "Prompt tokens per request",
    "output_tokens": "Output tokens per request",
    "prefix_hit_share": "Prompt tokens found in the cache",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on a scale from 0 to 100, where 50 is no change and right is worse."""

    low: float
    high: float
    change: float
    floor_low: float
    floor_high: float


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged metric; `notes` are its interval, floor and least visible change, or why not."""

    label: str
    first: str
    second: str
    change: str
    answer: str
    notes: tuple[str, ...]
    bar: Bar | None


@dataclass(frozen=True, slots=True)
class Beside:
    """One thing that stands beside the answer, as each side has it."""

    label: str
    first: str
    second: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class WherePart:
    """One part of the mean TTFT on both sides, in words, and its width on the bars in percent."""

    name: str
    label: str
    first: str
    second: str
    change: str
    first_width: float
    second_width: float


@dataclass(frozen=True, slots=True)
class WhereView:
    """In which waits the mean TTFT changed.

    Attributes:
        total: The mean itself: what the parts add up to.
        note: Over how many requests; or why there is no answer.
    """

    parts: tuple[WherePart, ...]
    total: WherePart | None
    note: str


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """All that a page shows of a comparison.

    Attributes:
        reach: What either end of the common scale stands for, as a share of the first side.
        shown: Metrics that are not judged.
        alike: Settings that both sides state alike, as one line.
    """

    first: str
    second: str
    status: Status
    judged: tuple[Judged, ...]
    reach: float
    shown: tuple[Beside, ...]
    where: WhereView
    windows: tuple[Beside, ...]
    traffic: tuple[Beside, ...]
    configuration: tuple[Beside, ...]
    alike: str


def comparison_view(document: Document) -> ComparisonView:
    """Read the agent's answer.

    Raises:
        KeyError, TypeError, ValueError: It is no comparison.
    """
    first, second = document["first"], document["second"]
    metrics = document["metrics"]
    reach = reach_of(metrics)
    differing = {one["name"] for one in document["config_differences"]}
    return ComparisonView(
        first=str(first["label"]),
        second=str(second["label"]),
        status=headline(document),
        judged=tuple(judged(metric, reach) for metric in metrics),
        reach=reach,
        shown=tuple(
            Beside(
                capitalised(one["label"]),
                amount(one["first"], one["unit"]),
                amount(one["second"], one["unit"]),
            )
            for one in document["shown"]
        ),
        where=where_view(document["where"]),
        windows=windows(first, second),
        traffic=traffic(document),
        configuration=tuple(
            Beside(words(one["name"]), stated(one["first"]), stated(one["second"]), differs=True)
            for one in document["config_differences"]
        ),
        alike=settings_words(
            {name: v for name, v in first["fingerprint"].items() if name not in differing}
        ),
    )


def headline(document: Document) -> Status:
    """Return the answer in a sentence, with its reasons."""
    text, tone = HEADLINES[document["answer"]]
    names = {"first": document["first"]["label"], "second": document["second"]["label"]}
    details = [capitalised(reason) for reason in reasons(document)]
    for answer in ("worse", "better"):
        moved = [one for one in document["metrics"] if one["answer"] == answer]
        if moved:
            named = ", ".join(f"{one['label']} {change_words(one)}" for one in moved)
            details.append(f"{answer}: {named}")
    if document["answer"] == "same":
        details.append("read the last line of each metric: so much would have been seen")
    return Status(text.format(**names), tuple(details), tone)


def reasons(document: Document) -> list[str]:
    """Return why there is no answer; what a metric's own line says is not said here as well."""
    unknown = [one for one in document["metrics"] if one["why_unknown"]]
    told_below = {f"{one['label']}: {one['why_unknown']}" for one in unknown}
    said = [str(reason) for reason in document["why_unknown"]]
    rest = [reason for reason in said if reason not in told_below]
    if len(rest) < len(said):
        rest.append("not known, each for the reason in its line: " + labels(unknown))
    return rest


def labels(metrics: Sequence[Document]) -> str:
    """Return the names of metrics."""
    return ", ".join(str(one["label"]) for one in metrics)


def judged(metric: Document, reach: float) -> Judged:
    """Return one judged metric in words, and its place on the scale."""
    unit = metric["unit"]
    return Judged(
        label=capitalised(metric["label"]),
        first=amount(metric["first"], unit),
        second=amount(metric["second"], unit),
        change=change_words(metric),
        answer=str(metric["answer"]),
        notes=notes(metric),
        bar=bar(metric, reach),
    )


def notes(metric: Document) -> tuple[str, ...]:
    """Say what the answer rests on: the interval, the floor, what would have been seen."""
    if metric["why_unknown"]:
        return (capitalised(str(metric["why_unknown"])),)
    unit, low, high = metric["unit"], metric["low"], metric["high"]
    if low is None or high is None:
        return ()
    said = [f"change {signed(low, unit)} to {signed(high, unit)}"]
    if metric["floor"] is not None:
        said.append(f"floor {amount(metric['floor'], unit)}")
    seen = metric["smallest_seen"]
    said.append(
        "no change, however large, would have been seen"
        if seen is None
        else f"one of {amount(seen, unit)} or more would have been seen"
    )
    return tuple(said)


def reach_of(metrics: Sequence[Document]) -> float:
    """Return how far the scale reaches, so that most intervals fit and a floor can be seen."""
    ends: list[float] = [
        abs(metric[name]) / metric["first"]
        for metric in metrics
        for name in ("low", "high")
        if metric["first"] and metric[name] is not None
    ]
    furthest = max(ends, default=0.0)
    return next((reach for reach in REACHES if furthest <= reach), REACHES[-1])


def bar(metric: Document, reach: float) -> Bar | None:
    """Return an interval's place; None where there is no interval, or nothing to measure it by."""
    first, low, high, floor = (metric[name] for name in ("first", "low", "high", "floor"))
    if not first or low is None or high is None:
        return None

    def place(value: float) -> float:
        share = float(value / first / reach)
        return 50 + 50 * min(max(share, -1.0), 1.0)

    return Bar(
        place(low), place(high), place(metric["change"]), place(-(floor or 0)), place(floor or 0)
    )


def where_view(where: Document) -> WhereView:
    """Return the split of the mean TTFT; both bars have one scale, the longer side's total."""
    total = where["total"]
    if total is None:
        return WhereView((), None, f"Not available: {where['why_not']}.")
    longest = max(total["first"], total["second"])
    numbers = (count(where[side]["num_requests"]) for side in ("first", "second"))
    note = "Exact, over {} and {} requests; the parts add up to the mean.".format(*numbers)
    parts = tuple(where_part(part, longest) for part in where["parts"])
    return WhereView(parts, where_part(total, longest), note)


def where_part(part: Document, longest: float) -> WherePart:
    """Return one part in words and widths."""
    first, second = part["first"], part["second"]
    return WherePart(
        name=str(part["name"]),
        label=capitalised(part["label"]),
        first=seconds(first),
        second=seconds(second),
        change=signed(part["change"], "s"),
        first_width=100 * first / longest if longest else 0.0,
        second_width=100 * second / longest if longest else 0.0,
    )


def windows(first: Document, second: Document) -> tuple[Beside, ...]:
    """Return engine, time and completeness of both sides."""
    pairs = [(side_words(first)[name], side_words(second)[name]) for name in SIDE_LABELS]
    return tuple(Beside(name, *pair) for name, pair in zip(SIDE_LABELS, pairs, strict=True))


SIDE_LABELS: Final = ("Engine", "Window", "Recorded", "Intervals left out", "Events lost")


def side_words(side: Document) -> dict[str, str]:
    """Say which engine and time a side is, and how much of it was recorded."""
    complete = side["completeness"]
    missing, in_gaps = complete["num_not_recorded"], complete["num_in_gaps"]
    return {
        "Engine": str(side["engine"]),
        "Window": window_words(side["start_ns"], side["end_ns"]),
        "Recorded": ratio(complete["counted_ratio"]),
        "Intervals left out": (
            f"{count(missing)} not recorded, {count(in_gaps)} with losses, of "
            f"{count(complete['num_intervals'])} (each {side['tier_seconds']} s)"
        ),
        "Events lost": count(complete["events_lost"]),
    }


def window_words(start_ns: int, end_ns: int) -> str:
    """Say from when to when, and how long that is."""
    start, end = moment(start_ns), moment(end_ns)
    until = f"{end:%H:%M:%S} UTC" if start.date() == end.date() else date_and_clock(end_ns)
    return f"{start:%Y-%m-%d %H:%M:%S} to {until} ({duration_text((end_ns - start_ns) / 1e9)})"


def traffic(document: Document) -> tuple[Beside, ...]:
    """Return what the engine was asked to do on both sides."""
    differing = {one["name"] for one in document["traffic_differences"]}
    first, second = document["first"]["traffic"], document["second"]["traffic"]
    return tuple(
        Beside(
            label,
            traffic_amount(name, first[name]),
            traffic_amount(name, second[name]),
            differs=name in differing,
        )
        for name, label in TRAFFIC.items()
    )


def traffic_amount(name: str, value: float | None) -> str:
    """Write one figure of the traffic."""
    return ratio(value) if name == "prefix_hit_share" else amount(value, "")


def change_words(metric: Document) -> str:
    """Write a change as a share of the first side, or as it is where that is 0."""
    change, share = metric["change"], metric["change_ratio"]
    if change is None:
        return NOT_MEASURED
    return signed(change, metric["unit"]) if share is None else f"{share * 100:+z.0f} %"


def amount(value: float | None, unit: str) -> str:
    """Write a value in its unit."""
    if value is None:
        return NOT_MEASURED
    if unit == "s":
        return seconds(value)
    text = count(value) if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{text} per s" if unit == "1/s" else f"{text} {unit}".rstrip()


def signed(value: float, unit: str) -> str:
    """Write a change with its sign."""
    sign = "" if value == 0 else "-" if value < 0 else "+"
    return f"{sign}{amount(abs(value), unit)}"


def stated(value: object) -> str:
    """Write a setting; one that a side does not state says so."""
    return "not stated" if value is None else str(value)


def settings_words(fingerprint: Mapping[str, object]) -> str:
    """Write settings as one line."""
    return ", ".join(f"{words(name)} {value}" for name, value in sorted(fingerprint.items()))
