"""Child processes that leave nothing behind: each measurement has a Place of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

START_TIMEOUT = 15.0
"""Seconds a broker may take to listen."""


class StartError(Exception):
    """A broker did not start; the message ends with the last line it wrote."""


@contextlib.contextmanager
def pinned(cpus: set[int] | None) -> Iterator[None]:
    """Processes started inside run on `cpus` from their first instruction, so that runtimes that count
    processors when they start count those; None changes nothing."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_given: deque[int] = deque(maxlen=1000)
"""The ports that were found free last."""


def free_port() -> int:
    """A loopback TCP port that nobody listens on now, another one each time: the last may not be in use yet."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port: int = sock.getsockname()[1]
        if port not in _given:
            _given.append(port)
            return port


class Place:
    """A temporary folder (on tmpfs if there is one) and the processes started in it. A context manager."""

    def __init__(self, cpus: set[int] | None) -> None:
        shared = Path("/dev/shm")
        usable = shared.is_dir() and os.access(shared, os.W_OK)
        self.folder = Path(tempfile.mkdtemp(prefix="saps-bench-", dir=shared if usable else None))
        self.pids: list[int] = []
        self._cpus = cpus
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _end(self._processes)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, argv: list[str]) -> Path:
        """Start a process. Its output goes to the file returned. Terminal signals do not reach it."""
        log = self.folder / f"log-{len(self._logs)}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SAPS_")}
        with pinned(self._cpus), log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        self._logs.append(log)
        self.pids.append(process.pid)
        return log

    def kill(self) -> None:
        """End its processes at once, and nothing else."""
        for process in self._processes:
            process.kill()
            process.wait()

    def wait_until(self, ready: Callable[[], bool], timeout: float = START_TIMEOUT) -> None:
        """Poll `ready` until it holds. Raises StartError if a process ends first, or after so many seconds."""
        deadline = time.monotonic() + timeout
        while not ready():
            for process, log in zip(self._processes, self._logs, strict=True):
                if process.poll() is not None:
                    raise StartError(f"ended with status {process.returncode}: {_tail(log)}")
            if time.monotonic() > deadline:
                raise StartError(f"not ready after {timeout:.0f} s: {_tail(self._logs[-1])}")
            time.sleep(0.02)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
    return lines[-1]


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to all, then SIGKILL to whoever is left after 5 s."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + 5.0
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
