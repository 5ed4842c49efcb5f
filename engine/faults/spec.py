"""What is said of a fault on a command line: `NAME[:key=value,…]`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from engine.errors import ConfigError
from engine.faults.fault import FaultParameters


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A fault that was asked for; its values are still words."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "FaultSpec":
        """Read `NAME` or `NAME:key=value,key=value`; raises ConfigError where it is neither."""
        name, _, rest = text.partition(":")
        values: dict[str, str] = {}
        for part in rest.split(",") if rest else ():
            key, equals, value = part.partition("=")
            if not (key and equals and value):
                raise ConfigError("fault", found=text, accepted="NAME or NAME:key=value,…")
            if key in values:
                raise ConfigError("fault", found=text, accepted=f"{key} once")
            values[key] = value
        return cls(name, values)

    def __str__(self) -> str:
        """Return the words again."""
        values = ",".join(f"{key}={value}" for key, value in self.values.items())
        return f"{self.name}:{values}" if values else self.name


def read_parameters(spec: FaultSpec, kind: type[FaultParameters]) -> FaultParameters:
    """Return a fault's parameters; raises ConfigError for one that it does not have or take."""
    known = {each.name: each.type for each in fields(kind)}
    values: dict[str, object] = {}
    for key, text in spec.values.items():
        if key not in known:
            raise ConfigError(f"parameter of {spec.name}", found=key, accepted=", ".join(known))
        values[key] = _value(f"{spec.name}: {key}", text, known[key])
    return kind(**values)  # type: ignore[arg-type]  # each was made of its field's type


def _value(name: str, text: str, kind: object) -> object:
    try:
        if kind is int:
            return int(text)
        if kind is float:
            number = float(text)
            if not abs(number) < 1e12:
                raise ValueError
            return number
    except ValueError:
        accepted = "a whole number" if kind is int else "a number"
        raise ConfigError(name, found=text, accepted=accepted) from None
    return text
