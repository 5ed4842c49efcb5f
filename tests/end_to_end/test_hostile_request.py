"""A client's id of a megabyte, markup, escapes and newlines, from the server's door to a file."""

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent.reads.reads import open_reads
from kvpulse.command import main as kvpulse
from kvpulse.identity import KeyedHashes
from tests.agent.factories_store import empty_store
from tests.agent.hostile_texts import CONTROL
from tests.engine.factories_server import KEY, RunningServer, running_server
from tests.waiting import wait_until

MARKUP = "\x1b[31m<img src=x>\r\n\\{}'%n|"
HUGE_USER = MARKUP + "u" * 2**20
LONG_ID = "<script>alert(1)</script>" + "i" * 8_000


def send_raw(server: RunningServer, *pieces: bytes) -> bytes:
    """Return what comes back until the server closes, whatever it thinks of the pieces."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
            return client.recv(65_536)
        except ConnectionError:
            return b""


def test_what_a_client_says_of_itself_is_bounded_hashed_and_harms_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    body = {"model": "simulated", "prompt": "hello", "max_tokens": 4}
    with running_server(tmp_path, "--simulated") as server:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: "
        refused = send_raw(server, head, b"<b>" * 400_000, b"\r\n\r\n")
        statuses = [
            server.post({**body, "user": HUGE_USER}).status_code,
            server.post({**body, "user": MARKUP}, x_request_id=LONG_ID).status_code,
            server.post(body).status_code,
        ]
        wait_until(server.is_idle)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0
    capsys.readouterr()
    out = str(tmp_path / "out")
    for command in (["summary"], ["block-map"], ["costs"], ["export", "--out", out]):
        kvpulse([*command, "--store", store, "--json"])
        told = capsys.readouterr()
        assert CONTROL.search(told.out + told.err) is None
        json.loads(told.out)

    reads = open_reads(store)
    (engine,) = reads.engines()
    tenants = {row.tenant for row in reads.requests(engine.run_key, 0, 2**62)}
    reads.close()
    assert refused == b"" or refused.startswith(b"HTTP/1.1 4")
    assert statuses[1:] == [200, 200]
    assert statuses[0] in {200, 400, 413}
    assert KeyedHashes(KEY).tenant_alias(MARKUP) in tenants
    assert sum(path.stat().st_size for path in tmp_path.glob("kvpulse.db*")) < 1 << 20
    segments = b"".join(path.read_bytes() for path in journal.rglob("*.seg"))
    exported = b"".join(path.read_bytes() for path in Path(out).iterdir())
    for needle in (b"<img src=x>", b"<script>", b"uuuuuuuu", b"iiiiiiii"):
        assert needle not in segments
        assert needle not in exported
