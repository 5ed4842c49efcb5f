"""The webhook's settings: off by default, a key from a private file, no secret in a message."""

import base64
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest

from agent.config import load_config
from agent.errors import ConfigError
from agent.live_view import LiveView
from agent.metrics.exporter import exporter_registry
from agent.metrics.page import page
from agent.webhook.outcome import Outcome
from agent.webhook.signature import read_key
from kvpulse.command import main as kvpulse

HOME = {"HOME": "/x"}


def key_file(folder: Path, content: str, mode: int = 0o600) -> Path:
    path = folder / "webhook.secret"
    path.write_text(content)
    path.chmod(mode)
    return path


def test_it_is_off_by_default() -> None:
    config = load_config({}, HOME)

    assert (config.webhook_url, config.webhook_secret_file) == (None, None)


def test_address_and_key_come_from_flags_variables_or_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kvpulse.toml"
    file.write_text('[agent]\nwebhook_url = "https://a/1"\nwebhook_secret_file = "/one"\n')
    environ = {**HOME, "KVPULSE_WEBHOOK_URL": "https://a/2"}

    config = load_config({"config": str(file), "webhook_secret_file": "/three"}, environ)

    assert config.webhook_url == "https://a/2"
    assert config.webhook_secret_file == Path("/three")


def test_an_address_without_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="webhook_secret_file: found ''; accepted is a private"):
        load_config({"webhook_url": "https://example.org/hook"}, HOME)


@pytest.mark.parametrize(
    "url", ["example.org/planted", "ftp://planted", "https://me:planted@x/", "http://x:0/planted"]
)
def test_a_bad_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="--webhook-url") as caught:
        load_config({"webhook_url": url, "webhook_secret_file": "/x"}, HOME)

    assert "planted" not in str(caught.value)
    assert "planted" not in str(caught.value.__cause__)


def test_the_address_is_not_in_the_configuration_s_text() -> None:
    flags = {"webhook_url": "https://example.org/planted", "webhook_secret_file": "/x"}

    assert "planted" not in repr(load_config(flags, HOME))


def test_a_key_is_the_line_itself_or_base64_behind_the_usual_prefix(tmp_path: Path) -> None:
    raw = bytes(range(32))
    encoded = "whsec_" + base64.b64encode(raw).decode()

    assert read_key(key_file(tmp_path, encoded + "\n")) == raw
    assert read_key(key_file(tmp_path, "correct-horse-battery\n")) == b"correct-horse-battery"


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        ("planted", 0o600, "7 bytes"),
        ("planted-planted-planted", 0o644, "mode 0644, open to others"),
        ("whsec_planted-planted-!", 0o600, "base64 after whsec_"),
        ("planted planted planted", 0o600, "characters that no header may carry"),
    ],
)
def test_a_file_that_holds_no_key_is_refused_without_its_text(
    tmp_path: Path, content: str, mode: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_key(key_file(tmp_path, content, mode))

    assert str(caught.value).startswith("webhook_secret_file ")
    assert "planted" not in str(caught.value)


def test_its_metric_is_there_from_the_start_and_absent_without_a_webhook() -> None:
    view = LiveView(0)
    registry = exporter_registry(view, lambda: 0)
    without = generate_latest(registry).decode()

    view.note_webhook({**dict.fromkeys(Outcome, 0), Outcome.DROPPED: 3})
    text = generate_latest(registry).decode()

    assert "webhook" not in without
    assert 'kvpulse_webhook_deliveries_total{outcome="dropped"} 3.0' in text
    assert 'kvpulse_webhook_deliveries_total{outcome="delivered"} 0.0' in text
    assert "| `kvpulse_webhook_deliveries_total` | counter |" in page()


def test_a_bad_key_file_is_refused_before_the_agent_does_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "kvpulse.db"
    flags = ["--webhook-url", "http://127.0.0.1:1/planted", "--store", str(store)]

    code = kvpulse(["agent", *flags, "--webhook-secret-file", str(tmp_path / "none")])

    errors = capsys.readouterr().err
    assert code == 2
    assert f"webhook_secret_file {tmp_path / 'none'}: found 'No such file or directory'" in errors
    assert "planted" not in errors
    assert not store.exists()
