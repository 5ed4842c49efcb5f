"""`kvpulse serve` as a process: what it says, which port it takes, how it ends."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine.commands.serve import main
from engine.server.listening import bind_exactly
from tests.waiting import wait_until

SIMULATED = ("--simulated", "--step-ms", "20", "--num-blocks", "64")


def _arguments(folder: Path, *arguments: str) -> list[str]:
    return ["--key-file", str(folder / "key"), "--journal", str(folder / "journal"), *arguments]


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], dict]]:
    """Run the command until the block ends; give the process and its ready line."""
    log = (folder / "log").open("wb")
    command = [sys.executable, "-m", "kvpulse", "serve", "--json"]
    command += _arguments(folder, *arguments)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()
        log.close()


def test_it_says_where_it_serves_and_what_it_took(tmp_path):
    with serving(tmp_path, *SIMULATED, "--port", "0") as (_, ready):
        assert ready["model"] == "simulated"
        assert ready["url"] == f"http://127.0.0.1:{ready['port']}"
        assert (tmp_path / "journal" / ready["engine"] / ready["run_id"]).is_dir()
        assert httpx.get(f"{ready['url']}/health").status_code == 200

    log = (tmp_path / "log").read_text()
    assert "pool of 64 blocks of 16 tokens" in log
    assert str(tmp_path / "journal") in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_quickly_and_in_order(tmp_path, number):
    accounts = tmp_path / "accounts.json"
    arguments = (*SIMULATED, "--port", "0", "--drain-seconds", "0.3")
    with serving(tmp_path, *arguments, "--accounts-file", str(accounts)) as (process, ready):
        url = f"{ready['url']}/v1/completions"
        body = {"prompt": [1], "max_tokens": 900, "stream": True}
        answers: list[httpx.Response] = []
        client = threading.Thread(
            target=lambda: answers.append(httpx.post(url, json=body, timeout=30))
        )
        client.start()
        page = f"{ready['url']}/debug/accounts"
        wait_until(lambda: httpx.get(page).json()["running"] == 1)

        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(20) == 0
        took = time.monotonic() - started
        client.join()

    assert took < 5
    # The client is told in the stream, since its status was sent long before.
    assert '"code":503' in answers[0].text
    counted = json.loads(accounts.read_text())
    assert counted["finished_by_reason"] == {"cancelled": 1}
    assert counted["active_blocks"] == 0


def _exit_code(folder: Path, *arguments: str) -> int:
    """Run the command in this process; it is to end before it serves."""
    try:
        return main(_arguments(folder, *arguments))
    except SystemExit as end:  # argparse
        return end.code


def test_a_port_in_use_is_an_error_when_it_was_asked_for(tmp_path, capsys):
    taken = bind_exactly("127.0.0.1", 0)
    try:
        assert _exit_code(tmp_path, *SIMULATED, "--port", str(taken.port)) == 2
    finally:
        taken.socket.close()

    assert f"port {taken.port} of 127.0.0.1 is taken" in capsys.readouterr().err


def test_a_missing_model_says_how_to_get_it(tmp_path, capsys):
    assert _exit_code(tmp_path, "--model", str(tmp_path / "none.gguf"), "--port", "0") == 3

    error = capsys.readouterr().err
    assert "none.gguf" in error
    assert "make model" in error


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--num-blocks", "0"), "not a positive number"),
        (("--port", "70000"), "no port"),
        (("--max-context", "1"), "max_context"),
        (("--max-batch", "9", "--token-budget", "4"), "token_budget"),
        (("--fault", "nonsense"), "leak_on_cancel"),
        (("--preemption", "swap"), "host_blocks of at least 1"),
        (("--tier", "batch:speed=9"), "step-tokens=TOKENS"),
        (("--tenant-quota", "acme:floor=9,ceiling=4"), "at most max_blocks (4)"),
        (("--engine", "../elsewhere"), "cannot name a directory"),
    ],
)
def test_a_setting_that_cannot_work_is_named(tmp_path, capsys, arguments, part):
    assert _exit_code(tmp_path, "--simulated", "--port", "0", *arguments) == 2

    assert part in capsys.readouterr().err


def test_simulated_serving_imports_no_torch(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from engine.commands.serve import main\nsys.exit(main(sys.argv[1:]))"
    )
    arguments = _arguments(tmp_path, *SIMULATED, "--port", "0", "--json")
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
    try:
        assert json.loads(process.stdout.readline())["event"] == "ready"
    finally:
        process.kill()
        process.communicate()
