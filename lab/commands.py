"""Runs the system's programs for the lab, and checks whether a lab is possible here."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from lab.interrupts import checkpoint
from lab.state import LabError

_PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
_PROGRAMS = {
    "ip": "iproute2", "tc": "iproute2", "ovs-vswitchd": "openvswitch-switch", "ovsdb-server": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch", "ovs-ofctl": "openvswitch-switch", "ovsdb-tool": "openvswitch-switch",
}  # fmt: skip
"""The programs that the lab runs, each with its Debian package."""


def obstacle() -> str | None:
    """Return why no lab can be built here, with the remedy, in one line, or None if a lab is possible."""
    if os.geteuid() != 0:
        return "the lab makes network namespaces and needs root: run it with sudo"
    missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program, path=_PATH) is None})
    if missing:
        return f"the lab needs Open vSwitch and iproute2; missing: apt-get install {' '.join(missing)}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return (
            "the lab needs /dev/net/tun, which is not there: load the module tun, or pass the device to the container"
        )
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"the lab may not make network namespaces here, though it runs as root: {probe.stderr.strip()}"
    return None


class Commands:
    """Runs programs, and reports their failures as `LabError`. Each inherits the descriptor `lock`, if it is given.

    The programs have process groups of their own, so that Ctrl-C reaches only this process, which then clears away."""

    def __init__(self, lock: int | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._inherited = () if lock is None else (lock,)
        self._environment = dict(os.environ) | {"PATH": _PATH, "LC_ALL": "C"} | dict(environment or {})

    def run(self, *command: str, text: str = "") -> str:
        """Run a program with `text` as its input, and return its output. Raises `LabError` if its status is not 0."""
        done = self._run(command, text, self._inherited)
        return done.stdout

    def daemon(self, *command: str) -> None:
        """Start a program that detaches itself when it is ready. It outlives this process, so it does not inherit the
        lock. Raises `LabError`."""
        self._run(command, "", ())

    def _run(self, command: Sequence[str], text: str, inherited: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            env=self._environment,
            pass_fds=inherited,
            process_group=0,
            check=False,
        )
        if done.returncode != 0:
            shown = " ".join(command) if len(command) < 12 else " ".join([*command[:10], "..."])
            raise LabError(f"{shown}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return done

    def ip(self, lines: Iterable[str], namespace: str | None = None) -> None:
        """Run `ip` commands as one batch, in `namespace` if it is given. Raises `LabError` at the first that fails."""
        where = [] if namespace is None else ["-n", namespace]
        self.run("ip", *where, "-batch", "-", text="".join(f"{line}\n" for line in lines))


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 10.0) -> None:
    """Wait until `condition` holds. It is polled every 5 ms, because the kernel notifies nobody.

    Raises `LabError`, naming `what`, after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        checkpoint()
        if time.monotonic() > deadline:
            raise LabError(f"waited {timeout:g} s for {what}")
        time.sleep(0.005)
