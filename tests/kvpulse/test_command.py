"""`kvpulse` dispatches, explains itself, and fails in one plain line."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from kvpulse import command
from kvpulse.command import BENCHES, COMMANDS, CommandEntry, main
from kvpulse.errors import ConfigError, JournalError
from tests.kvpulse.factories_journal import child_environment


@pytest.fixture
def table(monkeypatch):
    """Commands of this test's own, whose functions live in a module made up here."""
    functions = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "made_up", functions)
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: object())

    def add(function):
        functions.main = function
        entry = CommandEntry("made_up:main", "made up")
        monkeypatch.setattr(command, "COMMANDS", {"made-up": entry})

    return add


def raising(error):
    def function(argv):
        raise error

    return function


def test_help_lists_every_command_and_what_it_is_for(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, entry in COMMANDS.items():
        assert f"  {name}" in text
        assert entry.help in text


def test_alone_it_prints_help_too(capsys):
    assert main([]) == 0
    assert "usage: kvpulse COMMAND" in capsys.readouterr().out


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kvpulse 0.")


def test_bench_alone_lists_the_benches(capsys):
    assert main(["bench"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name}" in text for name in BENCHES)


@pytest.mark.parametrize("argv", [["nonsense"], ["bench", "nonsense"]])
def test_an_unknown_command_is_a_usage_error_that_names_the_known(capsys, argv):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("kvpulse: no command 'nonsense'")
    assert "emit" in error or "agent" in error


def test_arguments_and_exit_code_pass_through(table):
    seen = []
    table(lambda argv: seen.append(argv) or 1)

    assert main(["made-up", "--json", "x"]) == 1
    assert seen == [["--json", "x"]]


@pytest.mark.parametrize(("error", "code"), [(ConfigError("bad"), 2), (JournalError("bad"), 3)])
def test_an_expected_error_is_one_line_and_its_code(table, capsys, error, code):
    table(raising(error))

    assert main(["made-up"]) == code
    assert capsys.readouterr().err == "kvpulse: bad\n"


def test_another_packages_error_says_its_own_code(table, capsys):
    class AgentError(Exception):
        exit_code = 3

    table(raising(AgentError("no store")))

    assert main(["made-up"]) == 3
    assert capsys.readouterr().err == "kvpulse: no store\n"


def test_an_unexpected_error_keeps_its_traceback(table):
    table(raising(ZeroDivisionError("a bug")))

    with pytest.raises(ZeroDivisionError):
        main(["made-up"])


def test_ctrl_c_ends_with_130(table):
    table(raising(KeyboardInterrupt()))

    assert main(["made-up"]) == 130


def test_ctrl_c_is_how_a_demo_ends(table, monkeypatch):
    table(raising(KeyboardInterrupt()))
    entry = COMMANDS["demo"]._replace(target="made_up:main")
    monkeypatch.setattr(command, "COMMANDS", {"demo": entry})

    assert main(["demo"]) == 0


def test_a_missing_library_is_named(table, monkeypatch, capsys):
    table(lambda argv: 0)
    entry = CommandEntry("made_up_elsewhere:main", "made up")
    monkeypatch.setattr(command, "COMMANDS", {"made-up": entry})

    assert main(["made-up"]) == 3
    assert "needs the module 'made_up_elsewhere'" in capsys.readouterr().err


def test_installed_alone_it_says_how_to_get_the_rest(capsys, monkeypatch):
    found = command.importlib.util.find_spec
    monkeypatch.setattr(
        command.importlib.util,
        "find_spec",
        lambda name: found(name) if name == "kvpulse" else None,
    )

    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "(not installed)" in text
    assert "make setup" in text
    assert main(["agent"]) == 3
    assert "kvpulse agent` is not installed" in capsys.readouterr().err


def test_it_runs_as_a_module_and_without_numpy_or_torch():
    code = (
        "import sys; from kvpulse.command import main; main(['--help']);"
        "import kvpulse; kvpulse.Recorder;"
        "sys.exit(bool({'numpy', 'torch'} & set(sys.modules)))"
    )
    for arguments in (["-m", "kvpulse", "--help"], ["-c", code]):
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            env=child_environment(),
        )
        assert done.returncode == 0, done.stderr
        assert "usage: kvpulse COMMAND" in done.stdout


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m kvpulse --help | true",
        shell=True,
        capture_output=True,
        text=True,
        timeout=30,
        env=child_environment(),
    )
    assert done.stderr == ""


def test_public_names_are_there():
    import kvpulse

    assert {name for name in kvpulse.__all__ if getattr(kvpulse, name) is None} == set()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        kvpulse.nonsense  # noqa: B018 - the access is the test
