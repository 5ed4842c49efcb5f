"""The processes of a soak: each a `kvpulse` command of its own, ended with the block it runs in."""

import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import SoakError

POLL_SECONDS: Final = 0.1
STOP_SECONDS: Final = 30.0
MOST_SAID: Final = 2_000


@dataclass(frozen=True, slots=True)
class Part:
    """One running command; what it says on stderr goes into a file."""

    name: str
    process: "subprocess.Popen[str]"
    log: Path

    def failed(self, why: str) -> SoakError:
        """Return an error that tells what the part said last."""
        return SoakError(self.name, why, self.log.read_text(errors="replace")[-MOST_SAID:].strip())

    def check(self) -> None:
        """Raise `SoakError` if it has ended."""
        if self.process.poll() is not None:
            raise self.failed(f"ended with {self.process.returncode}")

    def output(self, *, seconds: float, accepted: Collection[int] = (0,)) -> str:
        """Wait until it has ended by itself, with a code accepted; return what it printed.

        Raises:
            SoakError: It failed, or it goes on.
        """
        try:
            printed, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise self.failed(f"did not end within {seconds:g} s") from error
        if self.process.returncode not in accepted:
            raise self.failed(f"ended with {self.process.returncode}")
        return printed


@contextmanager
def exit_on(number: signal.Signals) -> Iterator[None]:
    """Leave the block by SystemExit at a signal, so that no process and no folder is left over."""
    before = signal.signal(number, lambda *_: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def running(name: str, arguments: Sequence[str], folder: Path) -> Iterator[Part]:
    """Run `python ARGUMENTS` for as long as the block lasts; what still runs then gets SIGTERM."""
    log = folder / f"{name}.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=said, text=True
        )
    try:
        yield Part(name, process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
