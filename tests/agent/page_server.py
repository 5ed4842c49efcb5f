"""A real HTTP server on this machine that answers with what a test puts there."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import sleep


@dataclass
class Served:
    """What the server says, and what it was asked.

    Attributes:
        page: Returns the body of `/metrics` at each call.
        max_model_len: What `/v1/models` states; None: it does not know that path.
    """

    page: Callable[[], str | bytes] = lambda: ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    max_model_len: int | None = None
    model: str = "tiny"
    drips: bool = False  # sends the body byte by byte, without an end
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Served]:
    """Serve on a free port until left."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append((self.path, self.headers.get("Authorization")))
            if self.path == "/v1/models":
                self._models()
            else:
                self._page()

        def _models(self) -> None:
            if served.max_model_len is None:
                self.send_error(404)
                return
            row = {"id": served.model, "max_model_len": served.max_model_len}
            self._send(200, json.dumps({"data": [row]}).encode())

        def _page(self) -> None:
            body = served.page()
            self._send(served.status, body if isinstance(body, bytes) else body.encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            for name, value in served.headers.items():
                self.send_header(name, value)
            if served.drips:
                self.end_headers()
                self._drip()
                return
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _drip(self) -> None:
            try:
                while True:
                    self.wfile.write(b"#")
                    self.wfile.flush()
                    sleep(0.02)
            except OSError:
                pass  # the client has had enough

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
