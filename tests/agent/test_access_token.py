"""The optional bearer token: who is let in, and which files hold one."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agent.config import load_config
from agent.errors import ConfigError
from agent.http.access_token import is_authorized, read_token
from agent.http.app import create_app
from kvpulse.command import main as kvpulse
from tests.agent.factories_live import live_engine, view_of

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(view_of(live_engine()), token=TOKEN), base_url="http://127.0.0.1")


def token_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/status", "/nowhere"])
def test_who_sends_no_token_is_told_how_and_nothing_else(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="kvpulse"'
    assert answer.text == "send the agent's token: Authorization: Bearer TOKEN\n"
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_who_sends_it_is_answered(client: TestClient, scheme: str) -> None:
    answer = client.get("/metrics", headers={"authorization": f"{scheme} {TOKEN}"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"],
)
def test_nothing_near_it_is_enough(client: TestClient, header: str) -> None:
    assert client.get("/metrics", headers={"authorization": header}).status_code == 401


def test_a_header_of_any_bytes_is_compared() -> None:
    assert is_authorized("Bearer \xff\xfe", TOKEN) is False


def test_probes_need_none(client: TestClient) -> None:
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code in (200, 503)


def test_a_foreign_host_name_is_refused_although_the_token_is_right(client: TestClient) -> None:
    headers = {"host": "evil.example", "authorization": f"Bearer {TOKEN}"}

    assert client.get("/metrics", headers=headers).status_code == 421


def test_a_token_is_the_file_s_line(tmp_path: Path) -> None:
    path = token_file(tmp_path, TOKEN.encode() + b"\n")

    config = load_config({}, {"HOME": "/x", "KVPULSE_TOKEN_FILE": str(path)})

    assert config.token_file == path
    assert read_token(path) == TOKEN


@pytest.mark.parametrize(
    ("content", "mode", "found"),
    [
        (TOKEN.encode(), 0o640, "mode 0640, open to others"),
        (b"short", 0o600, "5 bytes"),
        (b"x" * 1_026, 0o600, "1026 bytes"),
        (b"two words of a token", 0o600, "characters that no header may carry"),
        (b"two\nlines-of-a-token", 0o600, "characters that no header may carry"),
        ("пароль-пароль".encode(), 0o600, "characters that no header may carry"),
        (b"", 0o600, "0 bytes"),
    ],
)
def test_a_file_that_holds_none_ends_with_2_and_its_text_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, mode: int, found: str
) -> None:
    path, store = token_file(tmp_path, content, mode), tmp_path / "kvpulse.db"

    code = kvpulse(["agent", "--once", "--store", str(store), "--token-file", str(path)])

    told = capsys.readouterr().err
    assert code == 2
    assert f"token_file {path}: found '{found}'; accepted is a regular file of mode 0600" in told
    assert not content or content.decode(errors="replace") not in told
    assert not store.exists()


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path if kind == "folder" else tmp_path / "missing"

    with pytest.raises(ConfigError, match=r"No such file|no regular file"):
        read_token(path)
