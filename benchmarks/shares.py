"""Shares of a processor: processes held to a fixed part of its time by the kernel's CPU bandwidth controller.

So a machine with few processors shows how programs of several processes grow: each process gets a fraction of a
processor, and all of them together less than one. Linux, cgroup v1 or v2, as root (Turner, Rao and Rao 2010, "CPU
bandwidth control for CFS").
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

PERIOD_US = 10_000
"""Microseconds over which a share counts. Longer lets a process run on and then stand still for longer; the kernel
takes no quota below 1,000."""
REMOVAL = 5.0
"""Seconds within which a group must be empty, and can be removed."""
PREFIX = "saps-bench"


class ShareError(Exception):
    """This machine gives no shares of a processor; the message says why."""


class Controller(NamedTuple):
    """Where the kernel takes orders."""

    folder: Path
    """Where groups are made."""
    home: Path
    """The group of this process, and of those it starts."""
    unified: bool
    """Version 2."""


def controller(mounts: str, groups: str) -> Controller:
    """The controller of processor time, from the texts of ``/proc/mounts`` and ``/proc/self/cgroup``. Raises ShareError
    if none is mounted."""
    unified: Path | None = None
    own = {names: path for _, names, path in (line.split(":", 2) for line in groups.splitlines())}
    for line in mounts.splitlines():
        _, folder, kind, options = line.split()[:4]
        if kind == "cgroup" and "cpu" in options.split(","):
            path = next((path for names, path in own.items() if "cpu" in names.split(",")), "/")
            return Controller(Path(folder), Path(folder) / path.lstrip("/"), unified=False)
        if kind == "cgroup2":
            unified = Path(folder)
    if unified is None:
        raise ShareError("no cgroup file system with a cpu controller is mounted")
    return Controller(unified, unified / own.get("", "/").lstrip("/"), unified=True)


def this_controller() -> Controller:
    """The one of this machine, ready for groups. Raises ShareError."""
    if os.geteuid():
        raise ShareError("only root may give out shares of a processor")
    found = controller(Path("/proc/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    if found.unified:
        try:
            (found.folder / "cgroup.subtree_control").write_text("+cpu")
        except OSError as error:
            raise ShareError(f"{found.folder} hands its cpu controller to no group: {error.strerror}") from None
    _sweep(found)
    return found


def _sweep(found: Controller) -> None:
    """Remove what a benchmark left that was killed."""
    for folder in found.folder.glob(f"{PREFIX}-*-*"):
        if not Path("/proc", folder.name.split("-")[-2]).exists():
            _remove(folder, found.home)


class Shares:
    """Groups of processes with a share each. A context manager: at the end the processes are free again, and the groups
    gone."""

    def __init__(self, found: Controller) -> None:
        self._controller = found
        self._groups: list[Path] = []

    def __enter__(self) -> Shares:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as removals:
            for folder in self._groups:
                removals.callback(_remove, folder, self._controller.home)

    def give(self, pid: int, percent: float) -> Path:
        """From now on the process, with all its threads and children to come, gets so much of one processor (above 100:
        of several). Returns its group. Raises ShareError."""
        folder = self._controller.folder / f"{PREFIX}-{os.getpid()}-{len(self._groups)}"
        quota = round(PERIOD_US * percent / 100)
        try:
            folder.mkdir()
            self._groups.append(folder)
            if self._controller.unified:
                (folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise ShareError(f"no share of {percent:g} % for process {pid}: {error.strerror}") from None
        return folder


def _remove(folder: Path, home: Path) -> None:
    """Free the processes in a group, and remove it. Raises ShareError if it cannot be emptied."""
    deadline = time.monotonic() + REMOVAL
    while folder.exists():
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                (home / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):  # one that has ended is still counted for a moment
            folder.rmdir()
        if folder.exists() and time.monotonic() > deadline:
            raise ShareError(f"{folder} cannot be removed")
        time.sleep(0.01 if folder.exists() else 0)
