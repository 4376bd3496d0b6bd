"""What a lab leaves on disk so that another process finds it: one folder a lab, one lock for all.

``<directory>/<name>/state.json`` is written before anything else is made and deleted after everything else is gone.
So whoever holds the lock and finds a state that says "not complete", or whose owner is dead, may clear that lab away.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from lab.interrupts import checkpoint
from saps.ofm.switch.topologies import Topology, from_toml, parse

DIRECTORY = Path("/run/saps-lab")
"""Where labs are unless told otherwise. Gone when the last lab is."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


class LabError(RuntimeError):
    """Something about the lab cannot be done; the text says what and why, for a user to read."""


class State(msgspec.Struct):
    """One lab, as its folder tells."""

    name: str
    topology: str
    """The text of its topology."""
    ipv6: bool = False
    controller: str | None = None
    """The target all switches connect to, as Open vSwitch writes it."""
    owner: tuple[int, int] | None = None
    """Process id and start time of the process with which the lab ends; None for one that stays until `down`."""
    complete: bool = False
    """Whether it was built to the end."""

    def folder(self, directory: Path) -> Path:
        return directory / self.name

    @property
    def orphaned(self) -> bool:
        """Nobody builds it and nobody uses it. Right only under the lock."""
        return not self.complete or (self.owner is not None and self.owner != _process(self.owner[0]))

    def planned(self) -> Topology:
        """The topology. Raises `TopologyError`."""
        return topology_of(self.topology)

    def save(self, directory: Path) -> None:
        """Writes it, whole or not at all."""
        folder = self.folder(directory)
        folder.mkdir(exist_ok=True)
        fresh = folder / "state.new"
        fresh.write_bytes(msgspec.json.encode(self))
        fresh.replace(folder / "state.json")


def topology_of(text: str) -> Topology:
    """The topology that `text` describes: in one word, or as a TOML document. Raises `TopologyError`."""
    return from_toml(text) if "\n" in text or "=" in text else parse(text)


def checked_name(name: str) -> str:
    """`name`, if a lab can have it. Raises `LabError`."""
    if not _NAME.fullmatch(name):
        raise LabError(
            f"{name!r} is no name for a lab: use a lower-case letter, then up to 19 letters, digits or hyphens"
        )
    return name


def this_process() -> tuple[int, int]:
    """This process as an owner."""
    found = _process(os.getpid())
    assert found is not None
    return found


def _process(pid: int) -> tuple[int, int] | None:
    """A living process's id and its start in clock ticks since boot; ids are used again, the pair is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else (pid, int(fields[19]))


def load(directory: Path, name: str) -> State | None:
    """The lab of that name; None if there is none. One that broke off before its state was written is not complete."""
    folder = directory / name
    try:
        return msgspec.json.decode((folder / "state.json").read_bytes(), type=State)
    except FileNotFoundError:
        return State(name, "") if folder.is_dir() else None
    except msgspec.MsgspecError as error:
        raise LabError(f"{folder / 'state.json'} is not readable: {error}") from None


def everything(directory: Path) -> list[State]:
    """All labs in `directory`, by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir() and _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []
    return [state for name in names if (state := load(directory, name)) is not None]


@contextmanager
def exclusive(directory: Path) -> Iterator[int]:
    """Holds the lock of `directory`, made if it is missing and deleted if nothing is in it at the end.

    To be called with interrupts `deferred`; waiting for the lock can be given up. Gives the lock's descriptor. A child
    that inherits it keeps the lock when this process is killed: nobody clears a lab away while a command that builds it
    is still at work."""
    while True:
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise LabError(f"cannot keep the lab's state in {directory}: {error.strerror}") from None
        with suppress(FileNotFoundError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), directory.stat()):
                    break
            os.close(lock)
        checkpoint()
        time.sleep(0.01)
    try:
        yield lock
    finally:
        with suppress(OSError):
            directory.rmdir()
        os.close(lock)
