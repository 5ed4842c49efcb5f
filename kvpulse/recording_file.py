"""A window's recording as one file: a zip of numpy arrays and a line of JSON, never any code."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvpulse.errors import RecordingDamaged
from kvpulse.window_recording import REQUEST_FIELDS, STEP_FIELDS, Ints, Stated, WindowRecording

VERSION: Final = 1
Arrays = dict[str, npt.NDArray[Any]]
MOST_BYTES: Final = 256 << 20  # unpacked
LONGEST_NS: Final = 7 * 86_400 * 10**9


def write_recording(recording: WindowRecording, path: Path) -> None:
    """Write a recording; only its owner may read it.

    Raises:
        OSError: The file is there already, or cannot be written.
    """
    write_private(recording_bytes(recording), path)


def write_private(content: bytes, path: Path) -> None:
    """Write the bytes of a recording as `write_recording` does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def recording_bytes(recording: WindowRecording) -> bytes:
    """Return a recording as what its file holds."""
    head = {
        "version": VERSION,
        "window_ns": recording.window_ns,
        "fingerprint": recording.fingerprint,
        "num_lost": recording.num_lost,
    }
    arrays: dict[str, Any] = {
        "head": np.frombuffer(json.dumps(head).encode(), np.uint8),
        "hashes": recording.hashes,
    }
    arrays |= {f"request_{name}": values for name, values in recording.requests.items()}
    arrays |= {f"step_{name}": values for name, values in recording.steps.items()}
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    return packed.getvalue()


def read_recording(path: Path) -> WindowRecording:
    """Read what `write_recording` wrote.

    Raises:
        RecordingDamaged: It is no such file, damaged, of another version, or larger than any.
        OSError: The file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(member.file_size for member in packed.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"{size} bytes unpacked, accepted are {MOST_BYTES}")
        with np.load(path, allow_pickle=False) as arrays:
            return _recording({name: arrays[name] for name in arrays.files})
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, RecursionError) as error:
        raise RecordingDamaged(path, str(error)) from error


def _recording(
    arrays: Arrays,
) -> WindowRecording:
    head = json.loads(arrays["head"].tobytes())
    if head["version"] != VERSION:
        raise ValueError(f"version {head['version']!r}, known is {VERSION}")
    window_ns, fingerprint = int(head["window_ns"]), head["fingerprint"]
    if not 0 < window_ns <= LONGEST_NS or not isinstance(fingerprint, dict):
        raise ValueError("its head is not one that we write")
    plain: dict[str, Stated] = {
        str(name): value
        for name, value in fingerprint.items()
        if isinstance(value, str | int | float) or value is None
    }
    requests = _columns(arrays, "request_", REQUEST_FIELDS)
    steps = _columns(arrays, "step_", STEP_FIELDS)
    hashes = arrays["hashes"].astype(np.uint64, casting="safe")
    recording = WindowRecording(window_ns, plain, requests, hashes, steps, int(head["num_lost"]))
    _check(recording)
    return recording


def _columns(
    arrays: Arrays,
    prefix: str,
    names: tuple[str, ...],
) -> dict[str, Ints]:
    columns = {name: arrays[prefix + name].astype(np.int64, casting="safe") for name in names}
    if len({column.shape for column in columns.values()}) != 1 or columns[names[0]].ndim != 1:
        raise ValueError("its columns differ in length")
    return columns


def _check(recording: WindowRecording) -> None:
    requests, steps = recording.requests, recording.steps
    arrived, num_hashes = requests["arrived_ns"], requests["num_hashes"]
    in_order = (np.diff(arrived) >= 0).all() and (arrived >= 0).all()
    if not in_order or (arrived > recording.window_ns).any():
        raise ValueError("its requests are not in order of arrival, or outside the window")
    if (num_hashes < 0).any() or int(num_hashes.sum()) != len(recording.hashes):
        raise ValueError("its hashes and its requests disagree")
    if any((column < 0).any() for column in steps.values()):
        raise ValueError("a step took less than nothing")
    for name in ("prompt_tokens", "max_tokens", "output_tokens"):
        if (requests[name] < -1).any() or (requests[name] > 1 << 32).any():
            raise ValueError(f"its {name} are out of range")
