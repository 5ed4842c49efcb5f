"""What the agent raises on purpose.

AgentError
├── ConfigError           a flag, variable or line of the configuration cannot be used
├── ChunkError            a stored chunk of events is damaged or of an unknown version
├── StateError            a stored ledger state or map is damaged or of an unknown version
├── HistogramError        stored histogram bytes are damaged
├── NotInstalled          an extra's packages are missing
├── ExportInTheWay        a file to be exported is there already
├── ExportUnwritable      an export's folder or file cannot be written
├── BaselineError         a baseline or a comparison cannot be had (agent/baselines/errors.py)
├── IncidentError         an incident cannot be had as asked
│   ├── IncidentNotFound  there is none of that number
│   ├── IncidentRefused   a number, a name or a note cannot be used
│   ├── IncidentDamaged   its evidence cannot be read
│   └── IncidentConflict  one of the same verdict is open already
├── AgentUnreachable      no agent answers at the address, or it cannot do what was asked now
├── RefusedByAgent        it answered, and said no
├── DrillError            the engine of a drill failed by itself
├── NeedsJournal          an engine that is known by its metrics page was asked for more
├── PageUnreachable       an engine's metrics page did not come
├── PageUnreadable        what came is no metrics page, or not one of an engine
├── SoakError             engine or agent of a soak failed, or did not come to its end
└── StoreError            the store cannot be used as asked
    ├── StoreNotFound     nothing there, or it cannot be reached
    ├── StoreTooNew       a newer kvpulse wrote it
    ├── StoreTooOld       it lacks revisions
    ├── StoreUnreadable   it was opened, and cannot be read now; worth another try
    ├── StoreUnwritable   it cannot be opened, created or written; worth another try
    ├── StreamHeld        another agent holds the stream's lease
    ├── StoreConflict     somebody else moved the same stream's position
    │   └── LeaseLost     another agent took the stream's lease over
    └── UnknownMetricError    no such column, latency or family
"""

from pathlib import Path
from typing import ClassVar


class AgentError(Exception):
    """Base of everything the agent raises on purpose; `exit_code` is what a command ends with."""

    exit_code: ClassVar[int] = 3


class ConfigError(AgentError):
    """A setting cannot be used."""

    exit_code: ClassVar[int] = 2

    def __init__(self, where: str, found: str, accepted: str) -> None:
        super().__init__(f"{where}: found {found!r}; accepted is {accepted}")
        self.where = where
        self.found = found
        self.accepted = accepted


class ChunkError(AgentError):
    """A chunk of events cannot be decoded."""


class StateError(AgentError):
    """A ledger state or block map cannot be decoded."""


class HistogramError(AgentError):
    """Histogram bytes cannot be decoded."""


class NotInstalled(AgentError):
    """A command needs the packages of an extra."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages: pip install 'kvpulse-app[{extra}]'")
        self.extra = extra


class ExportInTheWay(AgentError):
    """A file to be exported is there already."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is there already: choose another --out, or replace it by --force")
        self.path = path


class ExportUnwritable(AgentError):
    """An export's folder or file cannot be made or written."""

    def __init__(self, path: Path, error: OSError) -> None:
        why = error.strerror or str(error)
        super().__init__(f"cannot write {path}: {why}; make room there or choose another --out")
        self.path = path


class IncidentError(AgentError):
    """An incident cannot be had as asked."""

    exit_code: ClassVar[int] = 2


class IncidentNotFound(IncidentError):
    """There is no incident of that number."""

    def __init__(self, key: int) -> None:
        super().__init__(f"no incident {key}; `kvpulse incident list` names those there are")
        self.key = key


class IncidentRefused(IncidentError):
    """A number, a name or a note cannot be used; the message says what can."""


class IncidentDamaged(IncidentError):
    """What is stored of an incident cannot be read."""

    exit_code: ClassVar[int] = 3

    def __init__(self, key: int, why: str) -> None:
        super().__init__(f"incident {key} cannot be read: {why}; `kvpulse db check` says more")
        self.key = key


class IncidentConflict(IncidentError):
    """An incident of the same run and verdict is open already: another agent opened it."""

    exit_code: ClassVar[int] = 3

    def __init__(self, run_key: int) -> None:
        super().__init__(f"another agent writes incidents of run {run_key}: reading them again")
        self.run_key = run_key


class AgentUnreachable(AgentError):
    """No agent answers at the address, or it cannot do now what was asked."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"no answer from the agent at {url}: {why}; start one with `kvpulse agent`, or name"
            " another with --agent URL"
        )
        self.url = url
        self.why = why


class RefusedByAgent(AgentError):
    """The agent answered and said no; the text is its own."""

    exit_code: ClassVar[int] = 2


class DrillError(AgentError):
    """The process of a drill's engine ended in another way than its faults ask for."""

    def __init__(self, scenario: str, code: int, said: str) -> None:
        last = said.strip().splitlines()[-1:] or ["nothing"]
        super().__init__(
            f"the engine of {scenario} ended with {code}: {last[0]}; "
            "run `kvpulse replay --help` to see whether the engine part is installed"
        )
        self.scenario = scenario
        self.code = code


class SoakError(AgentError):
    """Engine or agent of a soak failed, or did not come to its end."""

    def __init__(self, part: str, why: str, said: str) -> None:
        super().__init__(f"the {part} of the soak {why}; it said: {said or 'nothing'}")
        self.part = part


class StoreError(AgentError):
    """The store cannot be used as asked."""


class StoreNotFound(StoreError):
    """Nothing is there, or it cannot be reached."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(f"no store at {label}: {why}; start one with `kvpulse agent`")
        self.label = label


class StoreTooNew(StoreError):
    """A newer kvpulse wrote the store."""

    exit_code: ClassVar[int] = 2

    def __init__(self, label: str, found: str, known: str) -> None:
        super().__init__(
            f"the store {label} is at revision {found}, newer than this kvpulse (which knows "
            f"{known}): run the kvpulse that wrote it, or choose another --store"
        )
        self.found = found
        self.known = known


class StoreTooOld(StoreError):
    """The store lacks revisions that this kvpulse needs."""

    exit_code: ClassVar[int] = 2

    def __init__(self, label: str, found: str | None, known: str) -> None:
        at = f"at revision {found}" if found else "without a schema"
        super().__init__(f"the store {label} is {at}, needed is {known}: run `kvpulse db upgrade`")
        self.found = found
        self.known = known


class StoreUnreadable(StoreError):
    """A store that was opened cannot be read now: locked, damaged, or its server is gone."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(f"cannot read the store {label} just now: {why}")
        self.label = label
        self.why = why


class StoreUnwritable(StoreError):
    """The store cannot be opened, created or written just now."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(f"cannot write the store {label}: {why}")
        self.label = label
        self.why = why


class StoreConflict(StoreError):
    """Somebody else moved the position of the same stream: two agents read it into one store."""

    def __init__(self, stream: str, expected: int) -> None:
        super().__init__(
            f"stream {stream}: the stored position is no longer at record {expected}, so another "
            "agent writes it into the same store; stop one of the two"
        )
        self.stream = stream
        self.expected = expected


class LeaseLost(StoreConflict):
    """Another agent took the stream over, because this one had been silent for too long."""

    def __init__(self, stream: str, silent_seconds: float) -> None:
        StoreError.__init__(
            self,
            f"stream {stream}: another agent writes it now; it took the lease over after this one "
            f"had been silent for {silent_seconds:.0f} s",
        )
        self.stream = stream


class StreamHeld(StoreError):
    """Another agent holds the stream's lease; `is_proven`: it is known to live."""

    def __init__(self, stream: str, holder: str, *, is_proven: bool) -> None:
        super().__init__(
            f"stream {stream}: another agent writes it ({holder}); this one leaves it alone, and "
            "takes over when that one stops or dies"
        )
        self.stream = stream
        self.holder = holder
        self.is_proven = is_proven


class DaysRefused(StoreError):
    """A run's times are none that a clock of an engine would show; nothing of them is stored."""

    def __init__(self, stream: str, found: str, allowed: str) -> None:
        super().__init__(
            f"stream {stream}: {found}, {allowed}; what was stored before stays. See whether its "
            "journal is damaged, or its engine's clock"
        )
        self.stream = stream


class UnknownMetricError(StoreError):
    """No column, latency or family has this name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no metric {name!r}; known are {', '.join(known)}")
        self.name = name
