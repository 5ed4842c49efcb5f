"""Options that cannot work are usage errors in plain words, before anything is started."""

import subprocess
import sys

import pytest

from engine.commands import demo, serve
from engine.demo.places import without_password


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--num-blocks", "0"], "'0' is not a positive number"),
        (["--num-blocks", "x"], "'x' is not a whole number"),
        (["--port", "70000"], "'70000' is no port"),
        (["--step-ms", "nan"], "'nan' is not a time that can pass"),
        (["--step-ms", "-5"], "'-5' is not a time that can pass"),
        (["--drain-seconds", "soon"], "'soon' is not a time that can pass"),
    ],
)
def test_serve_names_a_value_that_cannot_work(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        serve.main(["--simulated", *arguments])

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "0"], "'0' is not a time that can pass"),
        (["--seconds", "x"], "'x' is not a time that can pass"),
        (["--port", "-1"], "'-1' is no port"),
        (["--port", "99999"], "'99999' is no port"),
    ],
)
def test_demo_names_a_value_that_cannot_work(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        demo.main(["--simulated", *arguments])

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--journal", "--store"])
def test_a_demo_without_a_place_says_so_and_leaves_nothing(tmp_path, option):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "kvpulse", "demo", "--simulated", "--no-dashboard"]
    command += ["--seconds", "1", option, str(tmp_path / "file" / "x" / "y")]
    places = {"TMPDIR": str(tmp_path / "tmp"), "XDG_STATE_HOME": str(tmp_path / "state")}

    ended = subprocess.run(command, env=places, capture_output=True, text=True, check=False)

    assert ended.returncode == 3
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"kvpulse demo: cannot make {tmp_path}/file/x")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_password_of_a_store_is_not_shown():
    shown = without_password("postgresql+psycopg://ann:se:c@ret@db.example/x")

    assert shown == "postgresql+psycopg://ann:***@db.example/x"
    assert without_password("/tmp/a:b@c.db") == "/tmp/a:b@c.db"
