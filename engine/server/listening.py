"""Bind the port that a server will listen on, the next free one when that is allowed."""

import errno
import socket
from dataclasses import dataclass
from typing import Final

from engine.errors import EngineError

PORTS_TRIED: Final = 50


class PortTakenError(EngineError):
    """Somebody else listens on the port that was asked for."""

    def __init__(self, host: str, port: int, *, tried: int) -> None:
        if tried == 1:
            text = f"port {port} of {host} is taken: stop who uses it, or give another --port"
        else:
            text = f"ports {port} to {port + tried - 1} of {host} are all taken: give a free --port"
        super().__init__(text)
        self.host = host
        self.port = port


class AddressError(EngineError):
    """The address to listen on is not one of this machine, or may not be used."""

    def __init__(self, host: str, port: int, problem: str) -> None:
        super().__init__(f"cannot listen on {host}, port {port}: {problem}; see --host and --port")
        self.host = host
        self.port = port


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket, before anybody listens on it."""

    socket: socket.socket
    host: str
    port: int
    asked_port: int

    @property
    def url(self) -> str:
        """The address a client on this machine uses."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def bind_exactly(host: str, port: int) -> Listener:
    """Bind this port (0: any free one); raise PortTakenError if somebody has it."""
    bound = _try_bind(host, port)
    if bound is None:
        raise PortTakenError(host, port, tried=1)
    return Listener(bound, host, bound.getsockname()[1], port)


def bind_next_free(host: str, port: int) -> Listener:
    """Bind this port, or the first free one above it."""
    for candidate in range(port, min(port + PORTS_TRIED, 65_536)):
        bound = _try_bind(host, candidate)
        if bound is not None:
            return Listener(bound, host, bound.getsockname()[1], port)
    raise PortTakenError(host, port, tried=PORTS_TRIED)


def _try_bind(host: str, port: int) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise AddressError(host, port, error.strerror or str(error)) from error
    return bound
