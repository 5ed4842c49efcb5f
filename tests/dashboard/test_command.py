"""`kvpulse dashboard`: loopback unless told otherwise, plain errors, a taken port is not fatal."""

import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dashboard.commands import claim_port, hide_password, main
from dashboard.config import read_config
from dashboard.errors import ConfigError
from tests.dashboard.conftest import answers, unused_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def test_the_server_listens_on_loopback_alone_and_ends_at_once_when_told(tmp_path):
    port = unused_port()
    command = [sys.executable, "-m", "kvpulse", "dashboard"]
    command += ["--store", str(tmp_path / "none.db"), "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        wait_until(lambda: answers(port), timeout=30)
        listening = [
            entry.laddr
            for entry in psutil.Process(process.pid).net_connections()
            if entry.status == psutil.CONN_LISTEN
        ]
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=10)

    assert [(address.ip, address.port) for address in listening] == [("127.0.0.1", port)]
    assert f"http://localhost:{port}" in output


def test_a_taken_port_gives_the_next_free_one():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]

        found = claim_port("127.0.0.1", taken)

    assert found is not None
    with found.claim:
        assert taken < found.port < taken + 50


def test_two_that_start_at_once_take_two_ports():
    first = claim_port("127.0.0.1", 28_501)
    assert first is not None
    with first.claim:
        second = claim_port("127.0.0.1", first.port)
        assert second is not None
        with second.claim:
            assert second.port > first.port

    again = claim_port("127.0.0.1", first.port)
    assert again is not None
    with again.claim:
        assert again.port == first.port


@pytest.mark.parametrize("text", ["-4", "0", "70000", "0x", "\u00b2"])
def test_a_port_that_cannot_be_is_a_usage_error(capsys, text):
    with pytest.raises(SystemExit) as ended:
        main([f"--port={text}"])

    assert ended.value.code == 2
    assert "is no port" in capsys.readouterr().err


def test_a_price_that_is_no_number_is_refused_by_name(capsys):
    assert main(["--price-per-hour", "cheap"]) == 2

    assert "--price-per-hour is 'cheap'; accepted: a number of 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1,5"])
def test_a_price_that_cannot_be_is_refused(text):
    with pytest.raises(ConfigError):
        read_config({"KVPULSE_PRICE_PER_HOUR": text})


def test_the_store_s_default_is_the_agent_s(tmp_path):
    assert read_config({"XDG_STATE_HOME": str(tmp_path)}).store == str(
        tmp_path / "kvpulse" / "kvpulse.db"
    )


def test_a_password_in_the_store_s_address_is_not_printed():
    assert hide_password("postgresql://kv:secret@db/kv") == "postgresql://kv:***@db/kv"
    assert hide_password("/var/lib/kv.db") == "/var/lib/kv.db"
