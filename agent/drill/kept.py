"""Outcomes of a drill kept in a file, one JSON line each: what is there is not run again."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.drill.outcome import Outcome
from agent.errors import ConfigError
from agent.triage.verdicts import Verdict


class KeptOutcomes:
    """A file of outcomes; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> dict[str, Outcome]:
        """Return what was kept, by scenario.

        Raises:
            ConfigError: The file holds something else.
        """
        if self._path is None or not self._path.exists():
            return {}
        return {outcome.scenario: outcome for outcome in self._outcomes(self._path)}

    def add(self, outcome: Outcome) -> None:
        """Keep one more."""
        if self._path is None:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    def _outcomes(self, path: Path) -> Iterator[Outcome]:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield _outcome(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                accepted = "a file that the drill itself wrote, or one that is not there yet"
                raise ConfigError("--keep", str(path), accepted) from error


def _outcome(kept: dict[str, Any]) -> Outcome:
    lists = {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    return Outcome(**{**kept, **lists, "verdict": Verdict(kept["verdict"])})
