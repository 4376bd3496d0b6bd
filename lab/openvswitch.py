"""Runs a private Open vSwitch: database, switch daemon and bridges, separate from the system's service.

A private run directory separates its sockets, and a network namespace its datapath, because two userspace datapaths
cannot share a namespace.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from lab import plan
from lab.commands import Commands
from lab.namespace import Namespace
from lab.state import LabError
from saps.ofm.switch.topologies import Switch, Topology

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
NOBODY = "unix:nobody"
"""Address of a controller that does not exist. A switch flushes its tables when it gets its first controller, but not
when it changes controllers. So our switches always have one, and keep their first flow when the real one comes."""
MAX_BACKOFF = 1000
"""Most milliseconds between two attempts to reach the controller; Open vSwitch's own default is 8000."""
INACTIVITY_PROBE = 5000
"""Silence in ms after which a switch asks the controller for an echo."""
_REST = 60_000
"""Most milliseconds between two attempts to reach `NOBODY`."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that direct Open vSwitch's tools to the instance in `folder`."""
    return dict.fromkeys(("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"), str(folder))


class OpenVSwitch:
    """Runs the daemons in `folder` and `namespace`, and the switches of `topology` in them."""

    def __init__(self, folder: Path, namespace: Namespace, topology: Topology, lock: int | None = None) -> None:
        self._folder = folder
        self._namespace = namespace
        self._topology = topology
        self._commands = Commands(lock, environment(folder))

    def start_daemons(self) -> None:
        """Start the database and the switch daemon. They end with the namespace's other processes."""
        self._folder.mkdir()
        quiet = ["--pidfile", "--detach", "--log-file", "-vconsole:off", "-vsyslog:off"]
        database, door = str(self._folder / "conf.db"), f"unix:{self._folder / 'db.sock'}"
        self._commands.run("ovsdb-tool", "create", database, str(SCHEMA))
        with self._namespace.inside():
            self._commands.daemon("ovsdb-server", database, f"--remote=p{door}", *quiet)
            self._commands.daemon("ovs-vswitchd", door, "--disable-system", *quiet)

    def add(self, switches: Iterable[Switch], controller: str | None) -> None:
        """Make the switches. Their tables have one flow: `NORMAL` for every packet at priority 0, as in a hybrid
        switch.

        Raises `LabError` if a port did not come up under its number."""
        switches = list(switches)
        self.vsctl(*plan.bridges(switches, self._topology), *self._controllers(switches, None))
        self._check_ports(switches)
        self._spare_links({switch.name for switch in switches})
        for switch in switches:
            _install_normal(self._folder / f"{switch.name}.mgmt")
        self.set_controller(controller, switches)

    def remove(self, switches: Iterable[Switch]) -> None:
        """Remove the switches; the interfaces stay."""
        self.vsctl(*plan.removal(switches))

    def set_controller(self, controller: str | None, switches: Iterable[Switch] | None = None) -> None:
        """Connect the switches (None: all) to a controller, such as ``tcp:127.0.0.1:6653``. Tables stay.

        Several controllers are separated by spaces; None is no controller."""
        chosen = self._topology.switches if switches is None else tuple(switches)
        self.vsctl(*self._controllers(chosen, controller))

    def vsctl(self, *arguments: str) -> str:
        """Run one `ovs-vsctl` transaction, and wait until the switch daemon has carried it out. Raises `LabError`."""
        return self._commands.run("ovs-vsctl", f"--db=unix:{self._folder / 'db.sock'}", "--timeout=60", *arguments)

    def _controllers(self, switches: Iterable[Switch], controller: str | None) -> list[str]:
        backoff = _REST if controller is None else MAX_BACKOFF
        return plan.controllers(switches, controller or NOBODY, max_backoff=backoff, probe=INACTIVITY_PROBE)

    def _check_ports(self, switches: Iterable[Switch]) -> None:
        """Check the ports' numbers in the database, because `ovs-vsctl` returns 0 even if a port failed.

        Raises `LabError`."""
        rows = json.loads(self.vsctl("--format=json", "--columns=name,ofport,error", "list", "Interface"))["data"]
        actual = {name: (number, error) for name, number, error in rows}
        for switch in switches:
            for interface, wanted in plan.ports(switch.name, self._topology):
                number, error = actual.get(interface, (None, "is not in the database"))
                if number != wanted:
                    raise LabError(f"switch {switch.name}: port {interface} should be {wanted}, is {number}: {error}")

    def _spare_links(self, names: set[str]) -> None:
        """Set spare links, which close cycles, to no-flood. `NORMAL` then neither floods into them nor learns there."""
        for link in self._topology.links:
            for switch in {link.a, link.b} & names if link.spare else ():
                port = str(plan.spare_port(link, switch))
                self._commands.run("ovs-ofctl", "-O", "OpenFlow10", "mod-port", switch, port, "no-flood")


_HELLO, _ERROR, _FLOW_MOD, _BARRIER_REQUEST, _BARRIER_REPLY = 0, 1, 14, 20, 21
_VERSION = 4
_ANY, _NORMAL, _NO_BUFFER = 0xFFFFFFFF, 0xFFFFFFFA, 0xFFFFFFFF


def _message(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", _VERSION, kind, 8 + len(body), 1) + body


def normal_flow() -> bytes:
    """Return a FLOW_MOD (OpenFlow 1.3.5, 7.3.4.1) that adds a flow to table 0 at priority 0: output `NORMAL` for every
    packet."""
    head = struct.pack("!QQBBHHHIIIH2x", 0, 0, 0, 0, 0, 0, 0, _NO_BUFFER, _ANY, _ANY, 0)
    match_all = struct.pack("!HH4x", 1, 4)
    apply_output = struct.pack("!HH4x", 4, 24) + struct.pack("!HHIH6x", 0, 16, _NORMAL, 0)
    return _message(_FLOW_MOD, head + match_all + apply_output)


def _install_normal(door: Path) -> None:
    """Add `normal_flow` over a switch's management socket, ten times as fast as by a call of `ovs-ofctl`.

    Raises `LabError` if the switch refuses the flow or closes the channel."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(10)
        channel.connect(str(door))
        channel.sendall(_message(_HELLO) + normal_flow() + _message(_BARRIER_REQUEST))
        stream = channel.makefile("rb")
        while header := stream.read(8):
            _, kind, length, _ = struct.unpack("!BBHI", header)
            body = stream.read(length - 8)
            if kind == _ERROR:
                raise LabError(f"switch {door.stem} refuses its first flow: OpenFlow error {body[:4].hex()}")
            if kind == _BARRIER_REPLY:
                return
    raise LabError(f"switch {door.stem} closed the channel before its first flow was in")
