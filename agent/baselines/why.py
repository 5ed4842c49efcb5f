"""What an explanation does to a comparison: traffic that differs is no longer in the way.

A comparison whose traffic is out of band is `unknown`, since nobody knows what the traffic did to
it. Once both sides were replayed, that is known: the answer is what was measured, and the traffic's
share is said with it.
"""

from collections.abc import Mapping
from typing import Any, Final

Document = dict[str, Any]
CANNOT: Final = "cannot_be_explained"


def with_why(comparison: Mapping[str, Any], why: Document) -> Document:
    """Return a comparison's document with an explanation under `why`.

    Args:
        why: As `kvpulse explain --json` has it; `text` are lines for people.
    """
    explained = {**comparison, "why": why}
    if why["answer"] == CANNOT or not comparison["traffic_differences"]:
        return explained
    answer = comparison["if_explained"]
    text = [*why["text"], _traffic_line(why)]
    explained |= {"answer": answer, "why": {**why, "text": text}}
    if answer != "unknown":
        explained["why_unknown"] = []
    return explained


def _traffic_line(why: Mapping[str, Any]) -> str:
    if why["traffic_ratio"] is None:
        return "the traffic differs, and with it the mean TTFT does not"
    return f"the traffic's share (lengths and arrivals): {why['traffic_ratio']:.0%} of the change"
