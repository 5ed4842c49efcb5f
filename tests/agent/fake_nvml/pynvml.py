"""Stands first on `sys.path` in place of NVIDIA's module: says what `SCRIPT` says.

`SCRIPT` maps a function's name to what it does: an error to raise, or a value by handle or for all.
A name that it maps to `ABSENT` does not exist in this version. Every call is noted in `CALLS`.
"""

import json
import os
from types import SimpleNamespace

NVML_DEVICE_MIG_ENABLE = 1
ABSENT = object()
CALLS: list[str] = []


class NVMLError(Exception):
    """As in NVIDIA's module, the text of the error code."""


def _plain() -> dict[str, object]:
    return {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 2,
        "nvmlDeviceGetHandleByIndex": {0: "a", 1: "b"},
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMigMode": NVMLError("Not Supported"),
        "nvmlDeviceGetMaxMigDeviceCount": 0,
        "nvmlDeviceGetMigDeviceHandleByIndex": NVMLError("Not Found"),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_000, used=30_000, free=120_000),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87, memory=10),
        "nvmlDeviceGetPowerUsage": 412_500,
    }


SCRIPT = _plain()
_IMPORTED = os.environ.get("FAKE_NVML")  # for another process: {name: text of the error}
SCRIPT |= {name: NVMLError(text) for name, text in json.loads(_IMPORTED or "{}").items()}


def reset() -> None:
    """Begin anew: two healthy GPUs."""
    SCRIPT.clear()
    SCRIPT.update(_plain())
    CALLS.clear()


def __getattr__(name: str) -> object:
    if name not in SCRIPT or SCRIPT[name] is ABSENT:
        raise AttributeError(f"module 'pynvml' has no attribute '{name}'")

    def call(*arguments: object) -> object:
        CALLS.append(name)
        said = SCRIPT[name]
        if isinstance(said, dict):
            said = said[arguments[-1]]
        if isinstance(said, Exception):
            raise said
        return said() if callable(said) else said

    return call
