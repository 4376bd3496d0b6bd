"""Opens sockets and starts processes inside a network namespace.

A socket belongs for ever to the namespace that its thread was in when it was made. So one process can hold sockets of
many hosts, and one event loop can serve them all.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket as sockets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMED = Path("/run/netns")
"""Folder in which `ip netns` keeps the names of namespaces."""
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Namespace:
    """A named network namespace. The object neither makes the namespace nor needs it to exist."""

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._environment = dict(environment or {})

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    @property
    def path(self) -> Path:
        return NAMED / self.name

    @property
    def environment(self) -> dict[str, str]:
        """Environment of processes inside: this process's, with the variables by which `ovs-ofctl` and the like find
        the lab's switches."""
        return dict(os.environ) | self._environment

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Put the calling thread inside for the block. Other threads are not affected.

        Sockets, threads and child processes that the thread makes in the block stay inside. The block must not `await`,
        or other tasks of the loop run inside too; a block *around* ``asyncio.run`` is fine. Raises `OSError` without
        the privilege, or if the namespace does not exist."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _setns(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _setns(before)
        finally:
            os.close(before)

    def enter(self) -> None:
        """Move the calling thread inside for good. Use it in a process that is about to become another program."""
        with open(self.path, "rb") as there:
            _setns(there.fileno())

    def socket(
        self, family: int = sockets.AF_INET, kind: int = sockets.SOCK_STREAM, protocol: int = 0
    ) -> sockets.socket:
        """Return a new socket made inside. Raises `OSError`."""
        with self.inside():
            return sockets.socket(family, kind, protocol)

    def connect(self, address: tuple[str, int], timeout: float | None = None) -> sockets.socket:
        """Return a TCP connection from inside to a numeric address, made within `timeout` seconds. Raises `OSError`."""
        made = self.socket(_family(address[0]))
        try:
            made.settimeout(timeout)
            made.connect(address)
            made.settimeout(None)
        except BaseException:
            made.close()
            raise
        return made

    def listen(self, address: tuple[str, int]) -> sockets.socket:
        """Return a listening TCP socket inside, for ``asyncio.start_server(sock=...)``. Raises `OSError`."""
        made = self.socket(_family(address[0]))
        try:
            made.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(128)
        except BaseException:
            made.close()
            raise
        return made

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process inside, with `options` of `subprocess.Popen`. It ends with the lab."""
        options.setdefault("env", self.environment)
        with self.inside():
            return subprocess.Popen(command, **options)

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run a process inside and wait for it, with `options` of `subprocess.run`.

        Raises `subprocess.CalledProcessError` for an exit status other than 0, unless `check` is false."""
        options.setdefault("env", self.environment)
        with self.inside():
            return subprocess.run(command, check=options.pop("check", True), **options)

    def argv(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` inside, for processes started by other means, such as asyncio."""
        return ["nsenter", f"--net={self.path}", "--", *command]


def _family(host: str) -> int:
    return sockets.AF_INET6 if ":" in host else sockets.AF_INET


def processes(names: Sequence[str]) -> set[int]:
    """Return the ids of the other processes whose main thread is in one of these namespaces.

    Names of missing namespaces are ignored."""
    inodes = set()
    for name in names:
        try:
            found = (NAMED / name).stat()
        except FileNotFoundError:
            continue
        inodes.add((found.st_dev, found.st_ino))
    pids = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                net = os.stat(f"/proc/{entry.name}/ns/net")
            except OSError:
                continue
            if (net.st_dev, net.st_ino) in inodes:
                pids.add(int(entry.name))
    return pids


def end_processes(names: Sequence[str], number: signal.Signals, timeout: float) -> None:
    """Send a signal to all processes in these namespaces, in rounds until none is left.

    The next round finds processes that were just starting. Gives up after a round that takes more than `timeout`
    seconds."""
    while pids := processes(names):
        handles = []
        for pid in pids:
            with suppress(ProcessLookupError):
                handles.append(os.pidfd_open(pid))
                signal.pidfd_send_signal(handles[-1], number)
        ended = _all_ended(handles, timeout)
        for handle in handles:
            os.close(handle)
        if not ended:
            return


def _all_ended(handles: Sequence[int], timeout: float) -> bool:
    """Wait at most `timeout` seconds for the processes behind these descriptors; return whether all have ended."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    waiting, deadline = set(handles), time.monotonic() + timeout
    while waiting and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(left * 1000):
            poll.unregister(handle)
            waiting.discard(handle)
    return not waiting
