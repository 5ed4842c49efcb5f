"""Read the JSON files of a model folder; what they say is held against limits before it is used."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import EngineError

MAX_JSON_BYTES: Final = 256 << 20


class ModelFolderError(EngineError):
    """A model folder lacks a file, is damaged, or holds what is not built here."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        ModelFolderError: No readable file, larger than `max_bytes`, or no JSON object.
    """
    try:
        with path.open("rb") as source:
            data = source.read(max_bytes + 1)
    except OSError as error:
        raise ModelFolderError(path, f"cannot be read: {error}") from error
    if len(data) > max_bytes:
        raise ModelFolderError(path, f"is larger than the {max_bytes} bytes that are believed")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(path, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFolderError(path, "holds no JSON object")
    return value


class Settings:
    """The entries of one JSON object, each held against its type and range when asked for."""

    def __init__(self, path: Path, entries: Mapping[str, object]) -> None:
        self.path = path
        self._entries = entries

    def get(self, key: str) -> object:
        """Return an entry as it is; None where it is absent or null."""
        return self._entries.get(key)

    def error(self, problem: str) -> ModelFolderError:
        """Return an error about this file."""
        return ModelFolderError(self.path, problem)

    def count(self, key: str, default: int | None = None, *, most: int) -> int:
        """Return a whole number in [1, most].

        Raises:
            ModelFolderError: Absent without a default, or anything else.
        """
        value = self._entries.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self.error(f"has {key} = {value!r}, not a whole number from 1 to {most}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0.

        Raises:
            ModelFolderError: Absent without a default, or anything else.
        """
        value: Any = self._entries.get(key)
        value = default if value is None else value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # Neither NaN nor anything that a float cannot hold.
        if not is_number or not 0 < value < 1e300:
            raise self.error(f"has {key} = {value!r}, not a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false.

        Raises:
            ModelFolderError: Anything else.
        """
        value = self._entries.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(f"has {key} = {value!r}, not true or false")
        return value

    def part(self, key: str) -> "Settings | None":
        """Return an object inside this one; None where it is absent.

        Raises:
            ModelFolderError: Anything but an object.
        """
        value = self._entries.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"has {key} = {value!r}, not an object")
        return Settings(self.path, value)
