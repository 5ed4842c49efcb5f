"""Which writer records: the C emitter where it was built, Python where it was not or on request."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kvpulse
from kvpulse.command import main
from kvpulse.emitter_choice import PURE_PYTHON, Emitter, emitter, is_built
from kvpulse.errors import ConfigError
from kvpulse.recorder import Recorder
from tests.kvpulse.factories_journal import REPOSITORY, open_recorder, run_python

compiled_only = pytest.mark.skipif(
    not is_built(), reason="the C emitter was not built: no C compiler or no Python headers"
)


@pytest.fixture
def opened(tmp_path):
    recorders = []

    def open_one(emitter: str | None) -> Recorder:
        recorders.append(open_recorder(tmp_path, emitter=emitter))
        return recorders[-1]

    yield open_one
    for recorder in recorders:
        recorder.close()


RECORD_ONE = """
import sys
from pathlib import Path
import kvpulse
from kvpulse.stream_values import expand_words

recorder = kvpulse.Recorder.open(Path(sys.argv[1]), "e", total_blocks=8, block_size=16)
recorder.allocate(7, [3])
recorder.allocate(8, [1, 2])
recorder.close()
with kvpulse.StreamReader(recorder.directory) as reader:
    batch = reader.read()
print(kvpulse.emitter(), recorder.emitter, [expand_words(batch, i).tolist() for i in (1, 2)])
"""
WITHOUT_EXTENSION = """
import sys
sys.modules["kvpulse._emitter"] = None
"""


@compiled_only
def test_the_c_emitter_records_where_it_was_built(monkeypatch, opened):
    monkeypatch.delenv(PURE_PYTHON, raising=False)

    assert kvpulse.emitter() == "c"
    assert opened(emitter=None).emitter is Emitter.C


def test_the_environment_asks_for_the_python_writer(monkeypatch, opened):
    monkeypatch.setenv(PURE_PYTHON, "1")

    assert emitter() is Emitter.PYTHON
    assert type(opened(emitter=None)) is Recorder


def test_an_argument_wins_over_the_environment(monkeypatch, opened):
    monkeypatch.setenv(PURE_PYTHON, "0")

    assert opened(emitter="python").emitter is Emitter.PYTHON


@compiled_only
def test_an_argument_asks_for_c(monkeypatch, opened):
    monkeypatch.setenv(PURE_PYTHON, "1")

    assert opened(emitter="c").emitter is Emitter.C


def test_a_value_that_cannot_be_read_is_named(monkeypatch, capsys):
    monkeypatch.setenv(PURE_PYTHON, "yes")

    with pytest.raises(ConfigError, match="KVPULSE_PURE_PYTHON is 'yes'; use 1"):
        emitter()
    assert main(["--version"]) == 2
    assert "KVPULSE_PURE_PYTHON" in capsys.readouterr().err


def test_an_unknown_emitter_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'rust' is none of python, c"):
        Recorder.open(tmp_path, "e", total_blocks=1, block_size=16, emitter="rust")
    assert list(tmp_path.iterdir()) == []


def test_a_subclass_writes_with_what_it_is_made_of(tmp_path):
    class Mine(Recorder):
        __slots__ = ()

    recorder = Mine.open(tmp_path, "e", total_blocks=1, block_size=16)
    recorder.close()

    assert type(recorder) is Mine
    assert recorder.emitter is Emitter.PYTHON


def test_without_the_extension_python_records(tmp_path):
    done = run_python(WITHOUT_EXTENSION + RECORD_ONE, tmp_path)

    assert done.stdout == "python python [[3], [1, 2]]\n", done.stderr


def test_without_the_extension_asking_for_c_says_how_to_get_it(tmp_path):
    ask = (
        "import kvpulse\nkvpulse.Recorder.open('.', 'e', total_blocks=1, block_size=1, emitter='c')"
    )

    done = run_python(WITHOUT_EXTENSION + ask, cwd=tmp_path)

    assert "ConfigError: emitter 'c' was not built: install kvpulse again where" in done.stderr


def test_the_version_names_the_emitter_in_force(capsys, monkeypatch):
    monkeypatch.setenv(PURE_PYTHON, "1")

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("python emitter")


def build_wheel(folder: Path, compiler: str) -> str:
    """Build the wheel with the given C compiler; return the names in it."""
    shutil.copytree(
        REPOSITORY / "kvpulse",
        folder / "source",
        ignore=shutil.ignore_patterns("*.so", "build", "*.egg-info", "__pycache__"),
    )
    command = [
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", str(folder), str(folder / "source")),
    ]
    subprocess.run(["env", f"CC={compiler}", *command], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "--list", str(wheel)], capture_output=True, text=True
    )
    return listed.stdout


@pytest.mark.slow
def test_the_wheel_builds_without_a_compiler(tmp_path):
    names = build_wheel(tmp_path, "false")

    assert "kvpulse/recorder.py" in names
    assert "kvpulse/_emitter.c" not in names


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_the_wheel_holds_the_emitter_where_a_compiler_is(tmp_path):
    assert "kvpulse/_emitter.c" in build_wheel(tmp_path, "cc")  # kvpulse/_emitter.cpython-….so
