"""A target as it is written, `ttft p99 2s`: 99 of 100 first tokens within two seconds. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.duration import duration_text, parse_seconds

LATENCIES: Final = ("ttft", "inter_token", "pool_wait")
ACCEPTED: Final = (
    "targets with commas between, each LATENCY pNN TIME, for one engine ENGINE: before it; such as "
    f"'ttft p99 2s, inter_token p95 200ms, engine-a: pool_wait p99 1s' ({', '.join(LATENCIES)})"
)
_FORM: Final = re.compile(r"(\w+)\s+p(\d{1,2}(?:\.\d{1,3})?)\s+(\S+)")
_MILLISECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)ms")


@dataclass(frozen=True, slots=True)
class Target:
    """What one latency is to be.

    Attributes:
        latency: A name of `LATENCIES`.
        objective_ratio: So many are to be within the time, above 0 and below 1.
        seconds: The time.
        engine: Whose; None: of every engine that has none of its own for this latency.
    """

    latency: str
    objective_ratio: float
    seconds: float
    engine: str | None = None

    @property
    def text(self) -> str:
        """Return it as it is written, without the engine."""
        if self.seconds < 1:
            return f"{self.latency} p{self.objective_ratio * 100:g} {self.seconds * 1e3:g}ms"
        return f"{self.latency} p{self.objective_ratio * 100:g} {duration_text(self.seconds)}"


def parse_targets(text: str) -> tuple[Target, ...] | None:
    """Return the targets of a setting; None where it is none (`ACCEPTED` says what would be)."""
    found = [_parse(each) for each in text.split(",") if each.strip()]
    targets = tuple(each for each in found if each is not None)
    named = {(target.engine, target.latency) for target in targets}
    is_good = len(targets) == len(found) == len(named)
    return targets if is_good else None


def targets_of(targets: Sequence[Target], engine: str) -> tuple[Target, ...]:
    """Return the targets of one engine: its own, and for other latencies those of everybody."""
    own = [target for target in targets if target.engine == engine]
    named = {target.latency for target in own}
    common = [t for t in targets if t.engine is None and t.latency not in named]
    return tuple(sorted([*own, *common], key=lambda t: LATENCIES.index(t.latency)))


def _parse(text: str) -> Target | None:
    engine, _, rest = text.rpartition(":")
    found = _FORM.fullmatch(rest.strip())
    if found is None or found[1] not in LATENCIES:
        return None
    seconds = _seconds(found[3])
    objective_ratio = float(found[2]) / 100
    if seconds is None or not objective_ratio:
        return None
    return Target(found[1], objective_ratio, seconds, engine.strip() or None)


def _seconds(text: str) -> float | None:
    milliseconds = _MILLISECONDS.fullmatch(text.lower())
    if milliseconds:
        return float(milliseconds[1]) / 1e3 or None
    return parse_seconds(text)
