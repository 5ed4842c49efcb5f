"""Settings: flags over variables over a file over defaults; a bad one is named and refused."""

from pathlib import Path

import pytest

from agent.config import load_config
from agent.errors import ConfigError
from agent.store.connection import parse_address


def test_defaults_follow_the_desktop_folders() -> None:
    environ = {"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/home/x/state"}

    config = load_config({}, environ)

    assert config.journal == Path("/run/user/7/kvpulse")
    assert config.store == "/home/x/state/kvpulse/kvpulse.db"
    assert (config.host, config.port) == ("127.0.0.1", 9464)


def test_without_a_runtime_folder_the_journal_lies_in_shared_memory() -> None:
    config = load_config({}, {"HOME": "/home/x"})

    assert str(config.journal).startswith("/dev/shm/kvpulse-")
    assert config.store == "/home/x/.local/state/kvpulse/kvpulse.db"


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kvpulse.toml"
    file.write_text('[agent]\nport = 1\nhost = "file"\nlog_level = "debug"\n')
    environ = {"KVPULSE_CONFIG": str(file), "KVPULSE_PORT": "2", "KVPULSE_HOST": "variable"}

    config = load_config({"port": "3", "host": None}, environ)

    assert (config.port, config.host, config.log_level) == (3, "variable", "debug")


def test_host_names_come_as_a_list_in_the_file_or_with_commas(tmp_path: Path) -> None:
    file = tmp_path / "kvpulse.toml"
    file.write_text('[agent]\nallowed_hosts = ["agent", "kv.example"]\n')

    from_file = load_config({"config": str(file)}, {})
    from_variable = load_config({}, {"KVPULSE_ALLOWED_HOSTS": "agent, kv.example,"})

    assert from_file.allowed_hosts == from_variable.allowed_hosts == ("agent", "kv.example")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"KVPULSE_PORT": "http"}, "KVPULSE_PORT: found 'http'; accepted is a port from 0"),
        ({"KVPULSE_PORT": "65536"}, "KVPULSE_PORT: found '65536'"),
        ({"KVPULSE_COMMIT_SECONDS": "nan"}, "KVPULSE_COMMIT_SECONDS: found 'nan'"),
        ({"KVPULSE_COMMIT_EVENTS": "0"}, "a whole number from 1"),
        ({"KVPULSE_LOG_LEVEL": "loud"}, "one of debug, info, warning, error"),
        ({"KVPULSE_STORE": "  "}, "a text that is not empty"),
        ({"KVPULSE_CONFIG": "/nowhere/kvpulse.toml"}, "a readable TOML file"),
    ],
)
def test_a_bad_value_names_where_it_stood_what_it_was_and_what_is_accepted(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({}, {"HOME": "/x", **environ})

    assert message in str(caught.value)


def test_a_bad_flag_is_named_as_the_user_wrote_it() -> None:
    with pytest.raises(ConfigError, match="--log-level: found 'x'"):
        load_config({"log_level": "x"}, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\nporst = 1\n", r"\[agent\]: found 'porst'; accepted is one of journal, store"),
        ("[agent\n", "accepted is valid TOML"),
        ("agent = 1\n", r"a table \[agent\]"),
        ("[agent]\nport = true\n", "agent.port: found 'True'"),
    ],
)
def test_a_bad_file_is_never_ignored(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "kvpulse.toml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=message):
        load_config({"config": str(file)}, {})


def test_a_store_is_a_path_or_a_url_and_passwords_are_not_shown() -> None:
    assert parse_address("relative/kvpulse.db").path == Path("relative/kvpulse.db")
    assert parse_address("sqlite:////var/kvpulse.db").path == Path("/var/kvpulse.db")
    label = parse_address("postgresql://me:secret@host/kv").label
    assert "secret" not in label
    assert "host/kv" in label


@pytest.mark.parametrize("url", ["mysql://host/kv", "sqlite://", "sqlite:///:memory:", "no-db://"])
def test_a_database_that_the_store_cannot_use_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="accepted is"):
        parse_address(url)
