"""The receiver that docs/webhook.md shows checks what the agent really sends."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.webhook.endpoint import Answer, Endpoint
from agent.webhook.message import message_of
from agent.webhook.signature import read_key
from tests.agent.webhook.factories_webhook import ends, leak_changes
from tests.prometheus import free_port
from tests.waiting import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "webhook.md"
NOW = 1_790_000_000


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "kvpulse-webhook.secret"
    path.write_text("whsec_" + base64.b64encode(bytes(range(32))).decode() + "\n")
    path.chmod(0o600)
    return path


@contextmanager
def shown_receiver(home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the page's receiver, its secret where it expects it, at a time that stands still."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 17
    port = free_port()
    code = code.replace("8900", str(port)).replace("time.time()", str(NOW))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={"HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{port}/", process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_it_takes_what_is_signed_with_its_key_now_and_nothing_else(secret: Path) -> None:
    key = read_key(secret)
    message = message_of(ends(leak_changes())[0])
    assert message is not None

    with shown_receiver(secret.parent) as (url, process):
        forged = Endpoint(url, key[::-1])
        wait_until(lambda: forged.post(message, timestamp=NOW).answer is not Answer.LATER)
        refused = forged.post(message, timestamp=NOW)
        good = Endpoint(url, key).post(message, timestamp=NOW - 200)
        replayed = Endpoint(url, key).post(message, timestamp=NOW - 400)
        assert process.stdout is not None
        line = process.stdout.readline()

    assert good.answer is Answer.TAKEN
    assert (refused.answer, refused.why) == (Answer.REFUSED, "it answered 401")
    assert replayed.answer is Answer.REFUSED
    assert line == f"{message.id} {json.loads(message.body)['data']['summary']}\n"
