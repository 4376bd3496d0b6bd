"""Builds a lab and clears it away.

`build` needs the lab's state on disk and the lock held. If it stops anywhere, `clear` removes all parts of the lab,
without knowing how far it got. Every part is named after the lab, or is inside a part that is.
"""

from __future__ import annotations

import array
import fcntl
import os
import shutil
import signal
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from lab import plan
from lab.commands import Commands, wait_until
from lab.counters import reader
from lab.interrupts import checkpoint
from lab.namespace import NAMED, Namespace, end_processes
from lab.openvswitch import OpenVSwitch, environment
from lab.state import LabError, State
from saps.ofm.switch.topologies import SWITCHES, Host, Topology

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for processes still in the lab when it is cleared away."""
DEATH = 10.0
"""Most seconds to wait for killed processes to end."""
_FLAGS, _ETHTOOL = 0x8913, 0x8946
_RUNNING = 0x40
_SET_TX_CHECKSUM = 0x17


def build(state: State, folder: Path, lock: int) -> None:
    """Build the lab, of which nothing exists yet. Afterwards every port has its carrier, and every switch knows the
    port of every host.

    Raises `LabError`, and `KeyboardInterrupt` at a checkpoint; the caller must then call `clear`."""
    topology = state.planned()
    commands = Commands(lock)
    spaces = members(state.name, topology, folder)
    commands.ip(f"netns add {space.name}" for space in spaces.values())
    for space in spaces.values():
        _without_ipv6(space)
    checkpoint()
    commands.ip(plan.wires(state.name, topology), spaces[SWITCHES].name)
    for host in topology.hosts:
        checkpoint()
        _set_up_host(commands, spaces[host.name], host, topology, ipv6=state.ipv6)
    switches = OpenVSwitch(folder / "ovs", spaces[SWITCHES], topology, lock)
    switches.start_daemons()
    checkpoint()
    switches.add(topology.switches, None)
    _wait_for_carrier(spaces, topology)
    announce(spaces, topology)
    if state.controller is not None:
        switches.set_controller(state.controller)


def members(lab: str, topology: Topology, folder: Path) -> dict[str, Namespace]:
    """Return the namespaces of a lab by member: `SWITCHES` and each host's name."""
    variables = environment(folder / "ovs")
    names = (SWITCHES, *(host.name for host in topology.hosts))
    return {name: Namespace(plan.namespace(lab, name), variables) for name in names}


def _sysctl(interface: str, **values: int) -> None:
    """Set IPv6 options in the calling thread's namespace. A kernel without IPv6 needs none."""
    for name, value in values.items():
        with suppress(FileNotFoundError):
            Path(f"/proc/sys/net/ipv6/conf/{interface}/{name}").write_text(str(value))


def _without_ipv6(space: Namespace) -> None:
    """Disable IPv6 on interfaces made from now on. With IPv6 each would send about seven packets by itself."""
    with space.inside():
        _sysctl("default", disable_ipv6=1, accept_ra=0, router_solicitations=0)


def _set_up_host(commands: Commands, space: Namespace, host: Host, topology: Topology, *, ipv6: bool) -> None:
    with space.inside():
        offload_nothing(plan.DATA)
        if ipv6:
            _sysctl(plan.DATA, disable_ipv6=0)
    commands.ip(plan.host_addresses(host, topology, ipv6=ipv6), space.name)


def offload_nothing(interface: str) -> None:
    """Have the kernel compute checksums, because neither a veth pair nor a userspace datapath adds them later."""
    value = array.array("B", struct.pack("II", _SET_TX_CHECKSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sP", interface.encode(), value.buffer_info()[0]).ljust(40, b"\0")
        fcntl.ioctl(control, _ETHTOOL, request)


def _running(interfaces: Iterable[str]) -> bool:
    """Return whether all these interfaces, in the calling thread's namespace, have a carrier."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        return all(
            struct.unpack_from("H", fcntl.ioctl(control, _FLAGS, name.encode().ljust(40, b"\0")), 16)[0] & _RUNNING
            for name in interfaces
        )


def _wait_for_carrier(spaces: Mapping[str, Namespace], topology: Topology) -> None:
    waiting = {host.name: [plan.DATA, plan.MANAGEMENT] for host in topology.hosts}
    ends = [end for link in topology.links for end in (link.name, link.reverse)]
    waiting[SWITCHES] = ends + [host.name for host in topology.hosts]

    def all_up() -> bool:
        for member in list(waiting):
            with spaces[member].inside():
                if not _running(waiting[member]):
                    return False
            del waiting[member]
        return True

    wait_until(all_up, "the carrier of all interfaces")


def announce(spaces: Mapping[str, Namespace], topology: Topology) -> None:
    """Have every host announce its address (RFC 5227, 2.3), so that no switch floods unicast packets.

    Waits until all announcements have reached all hosts. Raises `LabError` if they do not."""
    read = reader(topology, spaces[SWITCHES])
    before = read()
    for host in topology.hosts:
        with spaces[host.name].inside(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((plan.DATA, 0))
            wire.send(announcement(host))
    others = len(topology.hosts) - 1
    wait_until(
        lambda: all(heard.packets >= others for _, _, heard in (read() - before).hosts()),
        "the hosts' announcements to pass the switches",
    )


def announcement(host: Host) -> bytes:
    """Return a host's ARP announcement as an Ethernet frame."""
    mac, ip = bytes.fromhex(host.mac.replace(":", "")), socket.inet_aton(host.ip)
    return b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac + ip + bytes(6) + ip


def namespaces(lab: str) -> list[str]:
    """Return the existing namespaces that belong to a lab by their names, sorted."""
    prefix = plan.namespace(lab, "")
    return sorted(entry.name for entry in os.scandir(NAMED) if entry.name.startswith(prefix)) if NAMED.is_dir() else []


def clear(state: State, folder: Path, lock: int) -> None:
    """Remove the processes, interfaces, namespaces and files of a lab. Missing parts are no error."""
    switches = plan.namespace(state.name, SWITCHES)
    names = namespaces(state.name)
    # The hosts' processes end first, because a broker needs the network to leave in order.
    for part in [name for name in names if name != switches], [switches]:
        end_processes(part, signal.SIGTERM, GRACE)
        end_processes(part, signal.SIGKILL, DEATH)
    commands = Commands(lock)
    if switches in names:
        # A socket may keep a namespace alive after its name is gone, so its interfaces are deleted explicitly.
        with suppress(LabError):
            commands.run("ip", "-n", switches, "link", "delete", "group", str(plan.GROUP))
    if names:
        commands.run("ip", "-force", "-batch", "-", text="".join(f"netns delete {name}\n" for name in names))
    shutil.rmtree(folder, ignore_errors=True)
