"""A file that appears under its name only when it is whole, for its owner alone."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import ExportInTheWay, ExportUnwritable


class PrivateFile:
    """Bytes for `path`, written under another name beside it (mode 0600) until `publish`.

    Writing never raises: arro3's writer panics where its file does (a full disk), so the first
    error is kept in `error`, what follows is dropped, and `publish` raises it.
    """

    def __init__(self, path: Path, *, replace: bool) -> None:
        """Open the file under its other name.

        Raises:
            ExportUnwritable: The folder does not let a file be made.
        """
        self.path = path
        self.error: OSError | None = None
        self.num_bytes = 0
        self._replace = replace
        self._partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.fdopen(os.open(self._partial, flags, 0o600), "wb")
        except OSError as error:
            raise ExportUnwritable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take away what was not published."""
        with suppress(OSError):  # nothing of it is kept
            self._file.close()
        self._partial.unlink(missing_ok=True)

    def write(self, data: bytes) -> int:
        """Append bytes."""
        if self.error is None:
            try:
                self._file.write(data)
                self.num_bytes += len(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing yet: `publish` makes the bytes durable."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Refuse: arro3 asks whether this exists, and only ever appends."""
        raise OSError("an export is written from its beginning to its end")

    def publish(self) -> None:
        """Make the bytes durable and give them their name.

        Raises:
            ExportUnwritable: They could not all be written.
            ExportInTheWay: There is a file of that name, and it is not to be replaced.
        """
        try:
            if self.error is not None:
                raise self.error
            self._file.flush()
            os.fsync(self._file.fileno())
            if self._replace:
                os.replace(self._partial, self.path)
            else:
                os.link(self._partial, self.path)  # unlike a rename, it never takes a name over
        except FileExistsError as error:
            raise ExportInTheWay(self.path) from error
        except OSError as error:
            raise ExportUnwritable(self.path, error) from error
