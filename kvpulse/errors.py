"""Everything kvpulse raises on purpose.

    KvpulseError                 base; `exit_code` is what the command ends with
    ├── ConfigError              a value that was handed in cannot be used
    ├── JournalError             a stream cannot be read
    │   ├── NotAJournalError     the bytes are no journal at all
    │   ├── UnsupportedVersionError   written by another version of the format
    │   ├── UnreadableSegmentError    the system does not let us read it
    │   └── KeyframeDamagedError a keyframe's words contradict themselves
    ├── RecordingDamaged         a file is no recording of a window
    └── IdentityKeyError         the key file is missing, short, or readable by others

Recording raises none of these: `Recorder.open` alone refuses arguments that cannot work.
"""

from pathlib import Path
from typing import ClassVar


class KvpulseError(Exception):
    """Base of every expected error; the command prints it as one line and no traceback."""

    exit_code: ClassVar[int] = 2


class ConfigError(KvpulseError):
    """A value that was handed in cannot be used."""


class RecordingDamaged(KvpulseError):
    """A file holds no recording of a window that this version can read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is no recording that can be read ({why}); record it anew")
        self.path = path


class JournalError(KvpulseError):
    """A stream cannot be read."""

    exit_code: ClassVar[int] = 3


class NotAJournalError(JournalError):
    """A segment does not start with the journal's magic."""

    def __init__(self, path: Path, found: bytes) -> None:
        super().__init__(
            f"{path} is no kvpulse journal: it starts with {found!r}, not {b'KVPULSEJ'!r}; "
            "point the reader at a stream directory <journal>/<engine>/<run id>"
        )
        self.path = path
        self.found = found


class UnsupportedVersionError(JournalError):
    """A segment was written by another version of the format."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path} has journal format {found}, this reader knows {known}; "
            "install the same kvpulse version beside the engine and beside the agent"
        )
        self.path = path
        self.found = found
        self.known = known


class UnreadableSegmentError(JournalError):
    """The system does not let us read a segment."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            f"cannot read {path}: {error.strerror}; segments belong to the engine's user alone, "
            "so read them as that user or as root"
        )
        self.path = path


class KeyframeDamagedError(JournalError):
    """A keyframe's words contradict themselves."""


class IdentityKeyError(KvpulseError):
    """The key file cannot be used."""
