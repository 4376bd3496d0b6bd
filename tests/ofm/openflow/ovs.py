"""A private Open vSwitch for a test: dummy datapath (no privilege, no device), its own directory, never the system's.

It runs from `with` to its end and leaves nothing behind. Ports are dummy devices: packets are put in by `receive`, and
what goes out of them is counted; patch ports join two bridges.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
PREFIX = "saps-ovs-"
"""Of the directories' names; the process id of the test follows."""
TIMEOUT = 45.0
"""Seconds until a program that does not come up is given up."""

_MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
needs_ovs = pytest.mark.skipif(
    bool(_MISSING) or not SCHEMA.exists(),
    reason=f"Open vSwitch is missing ({', '.join(_MISSING) or SCHEMA}): apt-get install openvswitch-switch",
)
"""Skips a test where Open vSwitch is not installed."""


def _listens(path: Path) -> bool:
    """A program takes connections at a Unix socket: that is some time after its file is there."""
    with socket.socket(socket.AF_UNIX) as probe:
        return not probe.connect_ex(str(path))


class Ovs:
    """A running ovsdb-server and ovs-vswitchd."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
            **{f"OVS_{name}DIR": str(home) for name in ("RUN", "DB", "LOG", "SYSCONF")},
        }
        self._database = f"unix:{home / 'db.sock'}"
        self._processes: list[subprocess.Popen[bytes]] = []

    # ---- programs

    def start(self) -> None:
        self.run("ovsdb-tool", "create", str(self.home / "conf.db"), str(SCHEMA))
        self._spawn("ovsdb-server", str(self.home / "conf.db"), f"--remote=p{self._database}")
        self._await(self.home / "db.sock")
        self.vsctl("--no-wait", "init")
        self.start_switch()

    def start_switch(self) -> None:
        """Start ovs-vswitchd."""
        self._spawn("ovs-vswitchd", self._database, "--enable-dummy", "--disable-system")
        self._await(self.home / f"ovs-vswitchd.{self._processes[-1].pid}.ctl")

    def kill_switch(self) -> None:
        """Kill ovs-vswitchd (SIGKILL): its tables are lost."""
        self._kill(self._processes.pop())

    def stop(self) -> None:
        for process in reversed(self._processes):
            self._kill(process)

    def _spawn(self, *command: str) -> None:
        log = self.home / f"{command[0]}.out"
        # The kernel kills the child if the test process dies without cleaning up.
        guarded = ("setpriv", "--pdeathsig", "KILL", "--", *command) if shutil.which("setpriv") else command
        with log.open("ab") as out:
            self._processes.append(
                subprocess.Popen(
                    [*guarded, "--pidfile", "-vconsole:warn", "-vsyslog:off"],
                    env=self._environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                )
            )  # fmt: skip

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def _await(self, path: Path) -> None:
        end = time.monotonic() + TIMEOUT
        while not _listens(path):
            if self._processes[-1].poll() is not None or time.monotonic() > end:
                logs = "".join(log.read_text() for log in self.home.glob("*.out"))
                raise RuntimeError(f"{path.name} did not appear: {logs}")
            time.sleep(0.01)

    def run(self, *command: str) -> str:
        """A command's output. Raises `CalledProcessError` with its error text."""
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    # ---- bridges

    def vsctl(self, *arguments: str) -> str:
        return self.run("ovs-vsctl", f"--db={self._database}", "--timeout=10", *arguments)

    def appctl(self, *arguments: str) -> str:
        [control] = self.home.glob("ovs-vswitchd.*.ctl")
        return self.run("ovs-appctl", "-t", str(control), *arguments)

    def ofctl(self, *arguments: str) -> str:
        return self.run("ovs-ofctl", "-O", "OpenFlow13", *arguments)

    def bridge(self, name: str, dpid: int, ports: Sequence[str] = (), controller: int | None = None) -> None:
        """A bridge with dummy ports numbered from 1, which connects to a controller's port on loopback."""
        command = ["add-br", name, "--", "set", "bridge", name, "datapath_type=dummy", "fail_mode=secure",
                   "protocols=OpenFlow13", f"other_config:datapath-id={dpid:016x}"]  # fmt: skip
        for number, port in enumerate(ports, 1):
            command += ["--", "add-port", name, port, "--", "set", "interface", port, "type=dummy",
                        f"ofport_request={number}"]  # fmt: skip
        self.vsctl(*command)
        if controller is not None:
            self.connect(name, controller)

    def show_certificate(self, key: Path, certificate: Path, authority: Path) -> None:
        """What its switches show a controller that they connect to by TLS, and whom they trust."""
        self.vsctl("set-ssl", str(key), str(certificate), str(authority))

    def connect(self, bridge: str, port: int, transport: str = "tcp") -> None:
        """`transport`: tcp, or ssl for TLS."""
        self.vsctl("set-controller", bridge, f"{transport}:127.0.0.1:{port}",
                   "--", "set", "controller", bridge, "max_backoff=1000", "inactivity_probe=5000")  # fmt: skip

    def patch(self, one: str, number: int, other: str, other_number: int) -> None:
        """Join two bridges by a pair of patch ports."""
        ends = [
            (one, number, f"{one}-{other}", f"{other}-{one}"),
            (other, other_number, f"{other}-{one}", f"{one}-{other}"),
        ]
        command: list[str] = []
        for bridge, ofport, name, peer in ends:
            command += ["--", "add-port", bridge, name, "--", "set", "interface", name, "type=patch",
                        f"options:peer={peer}", f"ofport_request={ofport}"]  # fmt: skip
        self.vsctl(*command[1:])

    def receive(self, port: str, frame: bytes) -> None:
        """A frame comes in at a dummy port."""
        self.appctl("netdev-dummy/receive", port, frame.hex())

    def carrier(self, port: str, up: bool) -> None:
        """Plug a dummy port in or out."""
        self.appctl("netdev-dummy/set-admin-state", port, "up" if up else "down")

    def flows(self, bridge: str) -> list[str]:
        """The flow entries as `ovs-ofctl` prints them, without counters."""
        text = self.ofctl("--no-stats", "dump-flows", f"unix:{self.home / bridge}.mgmt")
        return [line.strip() for line in text.splitlines() if "priority" in line or "actions" in line]

    def groups(self, bridge: str) -> list[str]:
        text = self.ofctl("dump-groups", f"unix:{self.home / bridge}.mgmt")
        return [line.strip() for line in text.splitlines() if "group_id" in line]


def _sweep() -> None:
    """Remove directories of test processes that were killed; the kernel has killed their Open vSwitch with them."""
    for home in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = home.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def open_vswitch() -> Iterator[Ovs]:
    """A fresh, empty Open vSwitch, stopped and removed at the end whatever happens."""
    _sweep()
    home = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    ovs = Ovs(home)
    try:
        ovs.start()
        yield ovs
    finally:
        ovs.stop()
        shutil.rmtree(home, ignore_errors=True)
