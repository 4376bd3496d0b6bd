"""Joins software switches by the links of a topology, with hosts at their edges: a frame in, frames out. Pure.

Names, addresses, datapath ids and port numbers are those of a lab of the same description
(`saps.ofm.switch.topologies`). Frames take no time. None is lost, except at ports that are down and in loops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from saps.ofm.network.topology import Port
from saps.ofm.openflow.values import PortInfo
from saps.ofm.switch.bridge import Bridge, Handed
from saps.ofm.switch.topologies import Topology

MOST_HOPS = 64
"""Switches that one copy may pass before it counts as lost in a loop."""
SPEED = 10_000_000
"""Speed in kbit/s that ports report."""
_MAC = 0x025A_0000_0000
"""Prefix of a port's MAC address; datapath id and port number follow."""


class SoftwareNetwork:
    """All switches of a topology. `deliver` receives frames for hosts; `hand` receives frames for controllers, by
    datapath id; `changed` receives ports that have gone up or down."""

    def __init__(
        self,
        topology: Topology,
        deliver: Callable[[str, bytes], None],
        hand: Callable[[int, list[Handed]], None],
        changed: Callable[[int, PortInfo], None],
        capacity: int | None = None,
    ) -> None:
        self.topology = topology
        self.lost_in_loops = 0
        """Frames dropped after too many switches."""
        self._deliver, self._hand, self._changed = deliver, hand, changed
        ids = {switch.name: switch.datapath_id for switch in topology.switches}
        self._far: dict[Port, Port] = {}
        self._hosts: dict[Port, str] = {}
        self._at: dict[str, Port] = {}
        ports: dict[int, dict[int, str]] = {dpid: {} for dpid in ids.values()}
        spare: set[Port] = set()
        for link in topology.links:
            a, b = Port(ids[link.a], link.a_port), Port(ids[link.b], link.b_port)
            self._far |= {a: b, b: a}
            ports[a.dpid][a.port], ports[b.dpid][b.port] = link.name, link.reverse
            spare |= {a, b} if link.spare else set()
        for host in topology.hosts:
            at = Port(ids[host.switch], host.port)
            self._hosts[at], self._at[host.name] = host.name, at
            ports[at.dpid][at.port] = host.name
        self.bridges = {
            dpid: Bridge(
                dpid,
                [PortInfo(number, name, _MAC | dpid << 16 | number, True, SPEED) for number, name in names.items()],
                {number for number in names if Port(dpid, number) not in spare},
                capacity,
            )
            for dpid, names in ports.items()
        }
        """The switches by datapath id."""
        self._names = ids

    def arrive(self, host: str, frame: bytes) -> None:
        """Forward a frame that a host sends."""
        at = self._at[host]
        self._forward([(at, frame)])

    def send(self, dpid: int, frames: Iterable[tuple[int, bytes]]) -> None:
        """Forward frames that a switch sends out of its ports on its controller's order."""
        self._forward(self._leave(dpid, frames))

    def _forward(self, arriving: list[tuple[Port, bytes]]) -> None:
        flying = deque((at, frame, 0) for at, frame in arriving)
        while flying:
            at, frame, hops = flying.popleft()
            if hops >= MOST_HOPS:
                self.lost_in_loops += 1
                continue
            sent, handed = self.bridges[at.dpid].receive(at.port, frame)
            if handed:
                self._hand(at.dpid, handed)
            flying.extend((far, copy, hops + 1) for far, copy in self._leave(at.dpid, sent))

    def _leave(self, dpid: int, frames: Iterable[tuple[int, bytes]]) -> list[tuple[Port, bytes]]:
        """Deliver the frames for hosts. Return the others with the ports at which they arrive."""
        onward = []
        for number, frame in frames:
            at = Port(dpid, number)
            if (far := self._far.get(at)) is not None:
                onward.append((far, frame))
            else:
                self._deliver(self._hosts[at], frame)
        return onward

    # ---- disturbances

    def set_link(self, a: str, b: str, *, up: bool, number: int = 1) -> None:
        """Set a link between two switches up or down, at both ends. Of parallel links, `number` selects one. Raises
        `KeyError` for an unknown link."""
        link = self.topology.link(a, b, number)
        for switch, port in ((link.a, link.a_port), (link.b, link.b_port)):
            self._set_port(Port(self._names[switch], port), up)

    def _set_port(self, at: Port, up: bool) -> None:
        ports = self.bridges[at.dpid].ports
        if ports[at.port].up != up:
            ports[at.port] = replace(ports[at.port], up=up)
            self._changed(at.dpid, ports[at.port])

    def dpid(self, switch: str) -> int:
        """Return the datapath id of a switch. Raises `KeyError` for an unknown name."""
        return self._names[switch]
