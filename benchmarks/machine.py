"""The machine and the software under which figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True):
    """What a reader needs to judge the figures."""

    processor: str
    processors: int
    memory_gib: float
    system: str
    kernel: str
    python: str


def _field(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.replace("=", ":", 1).partition(":")
        if name.strip() == key:
            return value.strip().strip('"')
    return "unknown"


def this_machine() -> Machine:
    """The machine this runs on (Linux)."""
    return Machine(
        processor=_field("/proc/cpuinfo", "model name"),
        processors=os.cpu_count() or 1,
        memory_gib=round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        system=_field("/etc/os-release", "PRETTY_NAME"),
        kernel=platform.release(),
        python=platform.python_version(),
    )
