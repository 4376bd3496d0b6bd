"""The machine and the software under which figures were measured."""

from __future__ import annotations

import contextlib
import os
import platform
import struct
from collections.abc import Iterator
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


SLEEP = Path("/dev/cpu_dma_latency")
"""Linux's power management: who holds it open says how long a processor may take to wake up."""


@contextlib.contextmanager
def awake(wanted: bool) -> Iterator[None]:
    """Keep the processors from sleeping meanwhile, if `wanted`. As root. Raises `OSError`."""
    if not wanted:
        yield
        return
    with SLEEP.open("r+b", buffering=0) as held:
        held.write(struct.pack("i", 0))  # microseconds
        yield
