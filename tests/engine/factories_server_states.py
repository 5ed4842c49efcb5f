"""A server with a request in each state in which a client can leave, or the server can end."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvpulse.events import Kind
from tests.engine.factories_server import Pending, RunningServer, running_server
from tests.engine.factories_server_journal import Recorded
from tests.waiting import wait_until

HOST_FLAG = 0x80
LONG = {"prompt": [1] * 40, "max_tokens": 400, "stream": True}
BASE = ("--simulated", "--step-ms", "20", "--num-blocks", "64")
PRESSING = {
    "prompt": [1] * 300,
    "max_tokens": 300,
    "stream": True,
}  # two are too many for 40 blocks
PRESSED = ("--num-blocks", "40", "--watermark", "0", "--prefix-index", "off")


@dataclass(frozen=True)
class State:
    """How a request comes to be in a state, and how one sees that it is.

    Attributes:
        asked: The request that is to be in it; it is the last that is sent.
        reached: Whether the server's accounts show it.
        before: Requests that are sent first, each once the one before runs.
        begun: Whether the request has had its status by then.
    """

    name: str
    asked: dict[str, object]
    reached: Callable[[dict[str, object]], bool]
    arguments: tuple[str, ...] = ()
    before: tuple[dict[str, object], ...] = ()
    begun: bool = False


def _counted(kind: str, least: int) -> Callable[[dict[str, object]], bool]:
    return lambda accounts: accounts["per_kind"].get(kind, 0) >= least


STATES = (
    State(
        "queued",
        {"prompt": [2] * 20, "stream": True},
        lambda accounts: (accounts["running"], accounts["waiting"]) == (1, 1),
        arguments=("--max-batch", "1"),
        before=(LONG,),
    ),
    State(
        "prefilling",
        {"prompt": [1] * 900, "max_tokens": 9, "stream": True},
        lambda accounts: accounts["running"] == 1 and accounts["steps"] > 1,
        arguments=("--token-budget", "16"),
    ),
    State("decoding", LONG, lambda accounts: accounts["output_tokens"] > 2, begun=True),
    State(
        "decoding_whole", {**LONG, "stream": False}, lambda accounts: accounts["output_tokens"] > 2
    ),
    State("forked", {**LONG, "max_tokens": 200, "n": 3}, _counted("copy_on_write", 2), begun=True),
    State(
        "best_of",
        {**LONG, "max_tokens": 200, "best_of": 4, "stream": False},
        _counted("copy_on_write", 3),
    ),
    State(
        "beams",
        {"prompt": [1] * 10, "max_tokens": 300, "n": 2, "use_beam_search": True, "beam_width": 3},
        lambda accounts: _counted("fork", 2)(accounts) and accounts["steps"] > 4,
    ),
    State(
        "preempted",
        PRESSING,
        _counted("preempt", 1),
        arguments=(*PRESSED, "--preemption", "recompute"),
        before=(PRESSING,),
        begun=True,
    ),
    State(
        "swapped",
        PRESSING,
        _counted("swap_out", 1),
        arguments=(*PRESSED, "--host-blocks", "64", "--preemption", "swap"),
        before=(PRESSING,),
        begun=True,
    ),
)


@contextlib.contextmanager
def in_state(folder: Path, state: State, *more: str) -> Iterator[tuple[RunningServer, Pending]]:
    """Serve, bring a request into its state, and give both; those before it go on."""
    with (
        running_server(folder, *BASE, *state.arguments, *more) as server,
        contextlib.ExitStack() as sent,
    ):
        for body in state.before:
            sent.enter_context(Pending(server, body))
            wait_until(lambda: server.accounts()["output_tokens"] > 0)
        pending = sent.enter_context(Pending(server, state.asked))
        wait_until(lambda: state.reached(server.accounts()), timeout=20, interval=0.002)
        yield server, pending


def references_left(folder: Path) -> dict[str, int]:
    """Return, by pool, how many references to blocks were taken and never given back."""
    recorded = Recorded(folder)
    left = {"gpu": 0, "host": 0}
    for kind, sign in ((Kind.ALLOCATE, 1), (Kind.SHARE, 1), (Kind.FREE, -1)):
        numbers = recorded.field(kind, "n")
        for flags, n in zip(recorded.field(kind, "flags"), numbers, strict=True):
            left["host" if flags & HOST_FLAG else "gpu"] += sign * n
    return left
