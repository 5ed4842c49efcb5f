"""Times calls on a GPU with its own events, from a cold L2, and measures its copy bandwidth."""

import statistics
from collections.abc import Callable
from typing import Final

import torch

WARM_UPS: Final = 3
COPIED_BYTES: Final = 1 << 30
LEAST_FLUSH_BYTES: Final = 256 << 20


class CudaTimer:
    """The median time of a call over repeats; before each the L2 is filled with other data."""

    def __init__(self, *, repeats: int, device: torch.device) -> None:
        """Time on `device`; the median is over `repeats` calls."""
        self._repeats = repeats
        l2_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        size = max(LEAST_FLUSH_BYTES, 4 * l2_bytes)
        self._flush = torch.empty(size, dtype=torch.int8, device=device)

    def __call__(self, call: Callable[[], object]) -> float:
        """Return seconds. The first calls, which compile, are not counted."""
        for _ in range(WARM_UPS):
            call()
        pairs = []
        for _ in range(self._repeats):
            started, ended = _event(), _event()
            self._flush.zero_()
            started.record()
            call()
            ended.record()
            pairs.append((started, ended))
        torch.cuda.synchronize()
        milliseconds = [float(started.elapsed_time(ended)) for started, ended in pairs]
        return statistics.median(milliseconds) / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def copy_bandwidth(timer: CudaTimer, device: torch.device) -> float:
    """Return the bytes read and written per second by the device's own copy of 1 GiB."""
    source, target = (torch.zeros(COPIED_BYTES, dtype=torch.int8, device=device) for _ in range(2))
    return 2 * COPIED_BYTES / timer(lambda: target.copy_(source))
