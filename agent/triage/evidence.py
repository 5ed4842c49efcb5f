"""Build evidence: a number with its unit, its window, and itself as a sentence."""

from datetime import UTC, datetime
from typing import Final

from agent.triage.facts import Facts
from agent.triage.verdicts import Evidence

MOST_NAMED: Final = 20


def over(facts: Facts, name: str, value: object, unit: str, text: str) -> Evidence:
    """Return a number that was counted over the window."""
    return Evidence(name, value, unit, text, facts.start_ns, facts.end_ns)


def at_end(facts: Facts, name: str, value: object, unit: str, text: str) -> Evidence:
    """Return a number of the window's last moment."""
    return Evidence(name, value, unit, text, None, facts.end_ns)


def since(facts: Facts, seconds: float, name: str, value: object, unit: str, text: str) -> Evidence:
    """Return a number of the last so many seconds."""
    return Evidence(name, value, unit, text, facts.end_ns - int(seconds * 1e9), facts.end_ns)


def clock(at_ns: int) -> str:
    """Return a wall time for people, UTC."""
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def named(numbers: list[int]) -> str:
    """Return the first of some numbers, and how many more there are."""
    shown = ", ".join(map(str, numbers[:MOST_NAMED]))
    more = len(numbers) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
