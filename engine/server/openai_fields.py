"""Read typed fields out of a JSON body and say precisely what is wrong with one."""

from collections.abc import Mapping
from math import inf

from engine.server.openai_errors import InvalidFieldError


class Fields:
    """A JSON object whose fields are read by type; an absent one and `null` are the same."""

    def __init__(self, body: Mapping[str, object]) -> None:
        self._body = body

    def raw(self, name: str) -> object:
        """Return a field as it came, None if it is absent."""
        return self._body.get(name)

    def text(self, name: str) -> str | None:
        """Return a string field."""
        value = self._body.get(name)
        if value is None or isinstance(value, str):
            return value
        raise _wrong(name, "a string", value)

    def flag(self, name: str) -> bool:
        """Return a boolean field, False if it is absent."""
        value = self._body.get(name)
        if value is None:
            return False
        if isinstance(value, bool):
            return value
        raise _wrong(name, "true or false", value)

    def integer(self, name: str, *, at_least: int | None = None) -> int | None:
        """Return an integer field, refused when it is below `at_least`."""
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(name, "an integer", value)
        if at_least is not None and value < at_least:
            raise InvalidFieldError(
                f"{name} must be at least {at_least}, got {value}. "
                f"(parameter={name}, value={value})",
                param=name,
            )
        return value

    def number(self, name: str, *, default: float, low: float, high: float) -> float:
        """Return a number field within [low, high]."""
        value = self._body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, "a number", value)
        number = _as_float(value)
        if not low <= number <= high:
            raise InvalidFieldError(
                f"{name} must be between {low:g} and {high:g}, got {number:g}. "
                f"(parameter={name}, value={number:g})",
                param=name,
            )
        return number

    def object(self, name: str) -> "Fields":
        """Return an object field, an empty one if it is absent."""
        value = self._body.get(name)
        if value is None:
            return Fields({})
        if isinstance(value, dict):
            return Fields(value)
        raise _wrong(name, "an object", value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return inf if value > 0 else -inf


def _wrong(name: str, wanted: str, value: object) -> InvalidFieldError:
    return InvalidFieldError(f"{name} must be {wanted}, got {json_type(value)}.", param=name)


def json_type(value: object) -> str:
    """Return what JSON calls the type of a value; the value itself may be private."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"
