"""The state of labs on disk, by which other processes find them: one folder for each lab, one lock for all.

``<directory>/<name>/state.json`` is written before anything else is made, and deleted after everything else is gone. A
holder of the lock may therefore clear away a lab whose state is not complete or whose owner is dead.
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
"""Default directory of the labs' state. It is removed with the last lab."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


class LabError(RuntimeError):
    """An operation on a lab failed; the text tells the user which and why."""


class State(msgspec.Struct):
    """The state of one lab, as stored in its folder."""

    name: str
    topology: str
    """Text of the topology; see `topology_of`."""
    ipv6: bool = False
    controller: str | None = None
    """Target that all switches connect to, in Open vSwitch's notation."""
    owner: tuple[int, int] | None = None
    """Process id and start time of the process with which the lab ends; None for a lab that stays until `down`."""
    complete: bool = False
    """Whether the lab was built completely."""

    def folder(self, directory: Path) -> Path:
        return directory / self.name

    @property
    def orphaned(self) -> bool:
        """Whether the build of the lab broke off, or its owner has ended.

        The answer is valid only under the lock; without it a lab may still be under construction."""
        return not self.complete or (self.owner is not None and self.owner != _process(self.owner[0]))

    def planned(self) -> Topology:
        """Return the topology. Raises `TopologyError`."""
        return topology_of(self.topology)

    def save(self, directory: Path) -> None:
        """Write the state, completely or not at all."""
        folder = self.folder(directory)
        folder.mkdir(exist_ok=True)
        fresh = folder / "state.new"
        fresh.write_bytes(msgspec.json.encode(self))
        fresh.replace(folder / "state.json")


def topology_of(text: str) -> Topology:
    """Return the topology that `text` describes in one word or as a TOML document. Raises `TopologyError`."""
    return from_toml(text) if "\n" in text or "=" in text else parse(text)


def checked_name(name: str) -> str:
    """Return `name` if it is a valid name for a lab. Raises `LabError` if not."""
    if not _NAME.fullmatch(name):
        raise LabError(
            f"{name!r} is no name for a lab: use a lower-case letter, then up to 19 letters, digits or hyphens"
        )
    return name


def this_process() -> tuple[int, int]:
    """Return this process as an owner: its id and start time."""
    found = _process(os.getpid())
    assert found is not None
    return found


def _process(pid: int) -> tuple[int, int] | None:
    """Return the id of a living process with its start in clock ticks since boot, or None if it has ended.

    Ids are reused; the pair is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else (pid, int(fields[19]))


def load(directory: Path, name: str) -> State | None:
    """Return the state of a lab, or None if it does not exist.

    A folder without a state is a lab whose build broke off; its state is not complete. Raises `LabError` for an
    unreadable state."""
    folder = directory / name
    try:
        return msgspec.json.decode((folder / "state.json").read_bytes(), type=State)
    except FileNotFoundError:
        return State(name, "") if folder.is_dir() else None
    except msgspec.MsgspecError as error:
        raise LabError(f"{folder / 'state.json'} is not readable: {error}") from None


def everything(directory: Path) -> list[State]:
    """Return the states of all labs in `directory`, ordered by name. Raises `LabError` for an unreadable state."""
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir() and _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []
    return [state for name in names if (state := load(directory, name)) is not None]


@contextmanager
def exclusive(directory: Path) -> Iterator[int]:
    """Hold the lock of `directory` within the block, and yield the lock's descriptor.

    The directory is made if it is missing, and deleted at the end if it is empty. Call this with interrupts `deferred`;
    a signal ends the wait for the lock. A child that inherits the descriptor keeps the lock if this process is killed.
    So nobody clears a lab away while a command that builds it still runs. Raises `LabError` if the directory cannot be
    made."""
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
