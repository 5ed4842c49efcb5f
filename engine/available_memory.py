"""How much memory this process could still have: the machine's free part, within its container."""

import os
from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")
CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes(*, meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Return the bytes that can be allocated without swapping, as far as the system says.

    Args:
        meminfo: The kernel's table; where there is none, half of physical memory is taken.
        cgroup: Folder of the container's own limits, version 2.
    """
    of_machine = _meminfo_available(meminfo)
    if of_machine is None:
        of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    of_container = _cgroup_left(cgroup)
    return of_machine if of_container is None else min(of_machine, of_container)


def _meminfo_available(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None


def _cgroup_left(cgroup: Path) -> int | None:
    """Return what is left of the container's limit; what it holds of files can be dropped."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    return max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
