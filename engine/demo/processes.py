"""Start child processes so that none outlives the demonstration, and end them in order."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from engine.demo.end_signals import hear_end_signals
from engine.errors import EngineError

_PR_SET_PDEATHSIG: Final = 1


class ChildFailedError(EngineError):
    """A child process ended although it was meant to run on."""

    def __init__(self, name: str, *, returncode: int, log: Path) -> None:
        tail = "\n".join(read_log(log).splitlines()[-12:])
        super().__init__(f"{name} ended with {returncode}; the end of {log}:\n{tail}")
        self.name = name
        self.returncode = returncode


class Child:
    """One `python -m kvpulse …` in a process group of its own, with its output in a file."""

    def __init__(self, name: str, arguments: Sequence[str], *, log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command_line(arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the terminal is for the demonstration alone
                preexec_fn=_die_with_parent() if sys.platform == "linux" else hear_end_signals,
            )

    @property
    def pid(self) -> int:
        """The process id, also of its group."""
        return self._process.pid

    def check(self) -> None:
        """Raise ChildFailedError if it has ended."""
        returncode = self._process.poll()
        if returncode is not None:
            raise ChildFailedError(self.name, returncode=returncode, log=self.log)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self, *, patience_seconds: float) -> int:
        """Ask it to end, insist after the patience, and return its exit code."""
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_seconds)
        self._kill_group()
        return self._process.wait()

    def _kill_group(self) -> None:
        """End whatever the child may have left behind, itself included."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def command_line(arguments: Sequence[str]) -> list[str]:
    """Return how `kvpulse` is called; -P: a file `agent.py` where we are called is not ours."""
    return [sys.executable, "-P", "-m", "kvpulse", *arguments]


def read_log(log: Path) -> str:
    """Return what a child has written so far."""
    try:
        return log.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def wait_for(
    condition: Callable[[], bool], *, children: Sequence[Child], timeout_seconds: float
) -> bool:
    """Poll a condition while the children live; return whether it came true in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        for child in children:
            child.check()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _die_with_parent() -> Callable[[], None]:
    """Return what a child runs first, so that it is ended should the demonstration be killed."""
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def ask_for_signal() -> None:
        hear_end_signals()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before we could ask
            os._exit(1)

    return ask_for_signal
