"""What answers for a store opens it when it is first asked, for reading and for writing apart."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from agent.reads.reads import Reads, open_reads
from agent.store.connection import StoreAddress, parse_address


class Closable(Protocol):
    """Something with connections."""

    def close(self) -> None:
        """Close them."""


Writer = TypeVar("Writer", bound=Closable)


class StoreDesk(Generic[Writer]):
    """Holds the connections of one desk. May be used from threads."""

    def __init__(self, store: str, open_writer: Callable[[StoreAddress], Writer]) -> None:
        self._store = store
        self._new_writer = open_writer
        self._opening = threading.Lock()
        self._reads: Reads | None = None
        self._writer: Writer | None = None

    def close(self) -> None:
        """Close every connection."""
        with self._opening:
            for part in (self._reads, self._writer):
                if part is not None:
                    part.close()
            self._reads = self._writer = None

    def _open_reads(self) -> Reads:
        with self._opening:
            if self._reads is None:
                self._reads = open_reads(self._store)
            return self._reads

    def _open_writer(self) -> Writer:
        with self._opening:
            if self._writer is None:
                self._writer = self._new_writer(parse_address(self._store))
            return self._writer
