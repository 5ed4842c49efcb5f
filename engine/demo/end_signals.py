"""What ends a demonstration: Ctrl-C, SIGTERM, a closed terminal; and when nothing may."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_end_signals() -> None:
    """Let each of them raise KeyboardInterrupt, so that everything started is also ended."""
    for number in END_SIGNALS:
        signal.signal(number, signal.default_int_handler)


def ignore_end_signals() -> None:
    """Let none of them disturb the end, which takes seconds at most, nor the exit code after it."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def end_signals_held_back() -> Iterator[None]:
    """Let them wait until the block is over: what it starts is also noted down."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_end_signals() -> None:
    """Undo the holding back in a child that was started meanwhile."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
