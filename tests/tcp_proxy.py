"""A TCP proxy that fails on demand: connections cut, refused, stopped, or robbed of one answer."""

import selectors
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class TcpProxy:
    """Passes bytes on between a port of its own and a server's, on a thread of its own."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cuts = 0
        self.bytes_up = 0
        self.is_open = True  # False: new connections are refused
        self.is_frozen = False  # True: nothing is passed on, and nobody is told
        self.cut_after: int | None = None  # client bytes still passed on before a cut
        self.rob: bytes | None = None  # pass this on, let the server do it, cut before its answer
        self._pairs: dict[socket.socket, tuple[socket.socket, bool]] = {}  # to whom, is client
        self._robbed: set[socket.socket] = set()  # servers whose next answer is not delivered
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        self.cut()
        self._listener.close()
        self._selector.close()

    def cut(self) -> None:
        """Break every connection, on both sides, without a farewell."""
        with self._lock:
            for end in list(self._pairs):
                if end in self._pairs:
                    self._cut_pair(end)

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.is_frozen:
                self._stop.wait(0.02)
                continue
            for key, _ in self._selector.select(timeout=0.02):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj in self._pairs:
                        self._pass_on(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            if not self.is_open:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
        except OSError:
            client.close()
            return
        for end, other, is_client in ((client, server, True), (server, client, False)):
            self._pairs[end] = (other, is_client)
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        other, is_client = self._pairs[end]
        try:
            data = end.recv(65_536)
            if not data or end in self._robbed:
                self._cut_pair(end)
                return
            if is_client:
                data = self._looked_at(data, other)
            other.sendall(data)
        except OSError:
            self._cut_pair(end)
            return
        if is_client and self.cut_after == 0:
            self.cut_after = None
            self._cut_pair(end)

    def _looked_at(self, data: bytes, server: socket.socket) -> bytes:
        if self.rob is not None and self.rob in data:
            self.rob = None
            self._robbed.add(server)
        if self.cut_after is not None:
            data = data[: self.cut_after]
            self.cut_after -= len(data)
        self.bytes_up += len(data)
        return data

    def _cut_pair(self, end: socket.socket) -> None:
        other, _ = self._pairs[end]
        self.cuts += 1
        for each in (end, other):
            del self._pairs[each]
            self._robbed.discard(each)
            self._selector.unregister(each)
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
