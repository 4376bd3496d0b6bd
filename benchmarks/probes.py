"""What the kernel says about a process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: list[int]) -> float:
    """Processor time used so far by the processes together, user and system."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def family(pids: list[int]) -> list[int]:
    """The processes and all that descend from them, now."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = list(pids)
    for pid in found:  # grows under way
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def machine_seconds() -> float:
    """Processor time of all processes so far, and time the hypervisor took away; without interrupt handling,
    which the kernel charges to nobody."""
    user, nice, system, _, _, _, _, steal = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + steal) / _TICK


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of the processes together. Socket buffers in the kernel are not part of it."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total
