"""How busy this machine's processors are: what runs on one that is short of them is slow, not wrong."""

from __future__ import annotations

import os
from pathlib import Path

SHORT = 0.9
"""Share of the processors' time beyond which programs wait for each other."""
_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""Fields of the first line: idle, and waiting for a disk."""


class Processors:
    """All processors of this machine, since it was made."""

    def __init__(self) -> None:
        self._began = _ticks()

    @property
    def busy(self) -> float | None:
        """Share of their time that was used, or taken away by a hypervisor; None where the kernel does not say."""
        now = _ticks()
        if now is None or self._began is None or now[1] <= self._began[1]:
            return None
        idle, total = now[0] - self._began[0], now[1] - self._began[1]
        return 1.0 - idle / total


def _ticks() -> tuple[int, int] | None:
    """Idle, and all."""
    try:
        fields = [int(field) for field in _STAT.read_text().partition("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(fields[field] for field in _IDLE), sum(fields)


def shortage(busy: float | None) -> str | None:
    """What to say of a machine on which something was slow; None if it was not the processors."""
    if busy is None or busy < SHORT:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"This machine was short of processor: {busy:.0%} of its {cores} cores were in use; that makes things slow."
