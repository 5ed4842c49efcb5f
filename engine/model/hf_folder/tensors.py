"""The tensors of a model folder, in one safetensors file or in several behind an index.

The safetensors library holds lengths and offsets against the file; here names and shapes are held
against what the model asks for before anything is read.
"""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.model.hf_folder.json_files import ModelFolderError, read_json

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
MAX_INDEX_BYTES: Final = 64 << 20
# An index names files beside itself, and nothing else.
SHARD_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.safetensors")
FLOAT_TYPES: Final = ("F32", "F16", "BF16")


class FolderTensors:
    """The open tensors of a folder; a context manager. Tensors returned outlive it."""

    def __init__(self, folder: Path) -> None:
        """Open every file and list what is in it.

        Raises:
            ModelFolderError: Missing or damaged files, or an index that disagrees with them.
        """
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._stack = ExitStack()
        self._file_of: dict[str, str] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        self._files.clear()
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read one tensor, in its own type.

        Raises:
            ModelFolderError: No such tensor, another shape than this, or no float type.
        """
        if name not in self._file_of:
            raise ModelFolderError(self.folder, f"should have {name} of shape {shape}, but has not")
        path = self.folder / self._file_of[name]
        try:
            described = self._files[self._file_of[name]].get_slice(name)
            there = tuple(described.get_shape())
            if there != shape:
                raise ModelFolderError(path, f"should have {name} of shape {shape}; it has {there}")
            if described.get_dtype() not in FLOAT_TYPES:
                known = ", ".join(FLOAT_TYPES)
                raise ModelFolderError(
                    path, f"keeps {name} as {described.get_dtype()}; built here are {known}"
                )
            tensor: Tensor = self._files[self._file_of[name]].get_tensor(name)
        except SafetensorError as error:
            raise ModelFolderError(path, f"gives no {name}: {error}") from error
        return tensor

    def _open(self) -> None:
        index = self.folder / INDEX_FILE
        if not index.is_file():
            for name in self._open_file(SINGLE_FILE):
                self._file_of[name] = SINGLE_FILE
            return
        weight_map = _read_weight_map(index)
        held = {file: self._open_file(file) for file in sorted(set(weight_map.values()))}
        for name, file in weight_map.items():
            if name not in held[file]:
                raise ModelFolderError(index, f"says that {file} holds {name}, but it does not")
            self._file_of[name] = file

    def _open_file(self, name: str) -> frozenset[str]:
        path = self.folder / name
        try:
            file: Any = safe_open(path, framework="pt", device="cpu")
            self._files[name] = self._stack.enter_context(file)
            return frozenset(file.keys())
        except (OSError, SafetensorError) as error:
            raise ModelFolderError(path, f"cannot be read as safetensors: {error}") from error


def _read_weight_map(index: Path) -> Mapping[str, str]:
    weight_map = read_json(index, max_bytes=MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFolderError(index, "has no weight_map")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not SHARD_NAME.fullmatch(file):
            raise ModelFolderError(
                index, f"places {name!r} in {file!r}, which is no safetensors file beside it"
            )
    return weight_map


def halves_to_pairs(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder each head's rows so that the numbers rotated together are neighbours.

    Hugging Face's layout rotates row i of a head with row i + head_dim / 2; the model here rotates
    neighbouring rows, as GGUF does.

    Args:
        rows: [num_heads * head_dim, …]: a projection as [out, in], or its bias.
        head_dim: Rows of a head.
    """
    halves = rows.view(-1, 2, head_dim // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def cast(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the tensor as `dtype` on `device`, contiguous and with memory of its own."""
    return tensor.to(device, dtype, copy=True).contiguous()
