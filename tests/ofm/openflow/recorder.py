"""A listener that remembers what it hears, and lets a test wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from saps.ofm.network.topology import Link, Port
from saps.ofm.openflow.driver.server import OpenFlowServer, ServerSettings
from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.hosts import HostGone, HostSeen
from saps.ofm.openflow.lldp import is_lldp
from saps.ofm.openflow.values import PacketIn, PortStatus

TIMEOUT = 45.0
"""Seconds a test waits for what must come."""


class Recorder:
    """Everything an `OpenFlowServer` told, as (what, ...) in order, and the state that it adds up to."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.switches: dict[int, Switch] = {}
        self.links: set[Link] = set()
        self.hosts: dict[int, HostSeen] = {}
        self.packets: list[tuple[int, PacketIn]] = []
        self._changed = asyncio.Event()

    async def until(self, true: Callable[[], bool]) -> None:
        """Returns once `true` of what was heard; fails if that does not come about."""
        async with asyncio.timeout(TIMEOUT):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def connected(self, dpid: int, *, after: Switch | None = None) -> Switch:
        """The switch once it is up, or up again after an earlier connection."""
        await self.until(lambda: dpid in self.switches and self.switches[dpid] is not after)
        return self.switches[dpid]

    def _note(self, *what: object) -> None:
        self.heard.append(what)
        self._changed.set()

    def switch_up(self, switch: Switch) -> None:
        self.switches[switch.dpid] = switch
        self._note("switch_up", switch.dpid)

    def switch_down(self, dpid: int) -> None:
        del self.switches[dpid]
        self._note("switch_down", dpid)

    def switch_gone(self, dpid: int) -> None:
        self._note("switch_gone", dpid)

    def port_status(self, dpid: int, status: PortStatus) -> None:
        self._note("port_status", dpid, status)

    def link_up(self, link: Link) -> None:
        assert link not in self.links
        self.links.add(link)
        self._note("link_up", link)

    def link_down(self, link: Link) -> None:
        self.links.remove(link)
        self._note("link_down", link)

    def host_seen(self, host: HostSeen) -> None:
        self.hosts[host.mac] = host
        self._note("host_seen", host)

    def host_gone(self, host: HostGone) -> None:
        del self.hosts[host.mac]
        self._note("host_gone", host)

    def loop_found(self, a: Port, b: Port) -> None:
        self._note("loop_found", a, b)

    def packet_in(self, dpid: int, packet: PacketIn) -> None:
        self.packets.append((dpid, packet))
        self._note("packet_in", dpid, packet)


class RecordedServer(OpenFlowServer):
    """A server whose recorder hears of all packets but LLDP's, too."""

    def __init__(self, host: str, port: int, heard: Recorder, settings: ServerSettings | None = None) -> None:
        super().__init__(host, port, heard, settings)
        self._recorder = heard

    def _packet_in(self, switch: Switch, packet: PacketIn) -> None:
        super()._packet_in(switch, packet)
        if not is_lldp(packet.frame):
            self._recorder.packet_in(switch.dpid, packet)
