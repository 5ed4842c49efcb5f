"""A real receiver that checks what it gets and behaves as told, and incidents to tell of."""

import base64
import hmac
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent.triage.facts import BookFacts
from agent.triage.incidents import Change, IncidentChange, IncidentTracker
from agent.triage.judge import judge
from tests.agent.factories_facts import END, NS, facts
from tests.agent.test_triage_rules import LEAKS

KEY = b"correct-horse-battery-staple"


@dataclass(frozen=True)
class Told:
    """One message as it arrived."""

    headers: HTTPMessage
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def is_authentic(self) -> bool:
        """Check the signature with other code than the product's."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode()
        mine = base64.b64encode(hmac.digest(KEY, signed + self.body, "sha256")).decode()
        return bool(self.headers["webhook-signature"] == f"v1,{mine}")


class Receiver(ThreadingHTTPServer):
    """Answers with the next of `answers`, the last one again and again.

    An answer is a status, "cut" (the connection is reset), or "drip" (a byte now and then, for as
    long as `hold` is not set). With "hold" it says nothing until then.
    """

    daemon_threads = True

    def __init__(self, answers: list[int | str]) -> None:
        self.told: list[Told] = []
        self.answers = answers
        self.hold = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?path=secret-path"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.server.answers[min(len(self.server.told), len(self.server.answers) - 1)]
        self.server.told.append(Told(self.headers, body))
        if answer == "cut":
            linger = struct.pack("ii", 1, 0)  # no goodbye: a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
        elif answer == "drip":
            self.wfile.write(b"HTTP")
            while not self.server.hold.wait(0.02):
                self.wfile.write(b".")
        elif answer == "hold":
            self.server.hold.wait(20)
        else:
            self._answer(int(answer))

    def do_GET(self) -> None:
        """A redirected POST would come as this."""
        self.server.told.append(Told(self.headers, b""))
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("location", self.server.url)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class QuietReceiver(Receiver):
    """Does not complain when a client is gone."""

    def handle_error(self, *_: object) -> None:
        """Say nothing: being cut off is what some tests are about."""


@contextmanager
def receiving(*answers: int | str) -> Iterator[Receiver]:
    """Run a receiver until the block ends."""
    server = QuietReceiver(list(answers) or [204])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Waits:
    """A clock that moves by the pauses that are asked for, and remembers them."""

    now: float = 1_790_000_000.0
    pauses: list[float] = field(default_factory=list)

    def wall_seconds(self) -> float:
        return self.now

    def pause(self, stop: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return stop.is_set()


def leak_changes() -> list[IncidentChange]:
    """Return a leak from its beginning to its end, as the tracker tells it."""
    tracker = IncidentTracker()
    leaking = judge(facts(books=BookFacts(300.0, leaks=LEAKS)))
    well = judge(facts())
    changes: list[IncidentChange] = []
    for at in range(0, 120, 10):
        diagnosis = leaking if at < 30 else well
        changes += tracker.follow(diagnosis, END + at * NS)
    return changes


def ends(changes: list[IncidentChange]) -> list[IncidentChange]:
    """Return those that are told: an incident's opening and its closing."""
    return [change for change in changes if change.change is not Change.UPDATED]
