"""Runs software switches on real sockets: TCP to the controller, and a UDP socket for each port with a host.

A host's port carries one Ethernet frame in each datagram, as QEMU's dgram netdev does. The last sender to the socket
counts as the host. There is no authentication, so the sockets belong on loopback or in a trusted network.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import cast

from saps.ofm.datapath.driver.udp import BUFFER
from saps.ofm.openflow.values import PortInfo
from saps.ofm.switch.bridge import Handed
from saps.ofm.switch.network import SoftwareNetwork
from saps.ofm.switch.openflow_agent import Agent
from saps.ofm.switch.topologies import Topology

logger = logging.getLogger(__name__)

RETRY_FIRST, RETRY_LAST = 0.2, 2.0
"""First and longest pause in seconds between two attempts to reach the controller; the pause doubles."""
TICK = 0.5
"""Period of timer checks in seconds."""
MOST_UNSENT = 4 << 20
"""Bytes waiting in the transport at which the connection to a slow controller is aborted."""


class SoftwareSwitches:
    """All switches of a topology, from `start` to `close`."""

    def __init__(self, topology: Topology, controller: tuple[str, int], capacity: int | None = None) -> None:
        self.network = SoftwareNetwork(topology, self._deliver, self._hand, self._changed, capacity)
        self.attachments: dict[str, tuple[str, int]] = {}
        """Address of each host's port, by the host's name."""
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        self._cables: dict[str, _Cable] = {}
        self._channels: dict[int, _Channel] = {}
        """Open connections, by datapath id."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> None:
        """Open the hosts' ports on consecutive numbers from `port` on (0: any free ports), and begin to connect to the
        controller. Raises `OSError` if a port is not available."""
        for number, each in enumerate(self.network.topology.hosts):
            at = (host, port + number if port else 0)
            made = partial(_Cable, partial(self._arrive, each.name))
            _, cable = await self._loop.create_datagram_endpoint(made, local_addr=at)
            self._cables[each.name] = cable
            self.attachments[each.name] = cable.address
        for dpid in self.network.bridges:
            self._tasks.append(asyncio.ensure_future(self._keep_connected(dpid)))

    async def close(self) -> None:
        """Disconnect, and close the ports."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for cable in self._cables.values():
            cable.close()

    def restart(self, dpid: int) -> None:
        """Restart a switch: it loses its tables and its connection, and reconnects."""
        self.network.bridges[dpid].restart()
        if (channel := self._channels.get(dpid)) is not None:
            channel.abort()

    def set_link(self, a: str, b: str, *, up: bool, number: int = 1) -> None:
        """See `SoftwareNetwork.set_link`."""
        self.network.set_link(a, b, up=up, number=number)

    @property
    def connected(self) -> int:
        """Number of switches whose controller has said hello."""
        return sum(channel.agent.ready for channel in self._channels.values())

    # ---- frames

    def _arrive(self, host: str, frame: bytes) -> None:
        self._keep_time()
        self.network.arrive(host, frame)

    def _deliver(self, host: str, frame: bytes) -> None:
        self._cables[host].send(frame)

    def _hand(self, dpid: int, packets: list[Handed]) -> None:
        if (channel := self._channels.get(dpid)) is not None:
            channel.agent.hand(packets)
            channel.flush()

    def _changed(self, dpid: int, port: PortInfo) -> None:
        if (channel := self._channels.get(dpid)) is not None:
            channel.agent.port_changed(port)
            channel.flush()

    def _keep_time(self) -> None:
        now = self._loop.time()
        for bridge in self.network.bridges.values():
            bridge.now = now

    # ---- the controller

    async def _keep_connected(self, dpid: int) -> None:
        """Connect, and reconnect after each end. The tables stay meanwhile (fail-secure mode, 6.4)."""
        pause, bridge, said = RETRY_FIRST, self.network.bridges[dpid], False
        while True:
            agent = Agent(bridge, partial(self.network.send, dpid))
            try:
                made = partial(_Channel, agent, self._keep_time)
                _, channel = await self._loop.create_connection(made, *self._controller)
            except OSError as error:
                if not said:
                    logger.warning("switch %016x: no controller at %s:%d yet: %s", dpid, *self._controller, error)
                said = True
            else:
                self._channels[dpid] = channel
                try:
                    await self._attend(channel)
                finally:
                    del self._channels[dpid]
                    channel.close()
                logger.info("switch %016x: the connection has ended: %s", dpid, agent.lost or "closed")
                pause = RETRY_FIRST
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_LAST)

    async def _attend(self, channel: _Channel) -> None:
        """Pass on the time until the connection ends."""
        last = self._loop.time()
        while not channel.ended.is_set():
            try:
                async with asyncio.timeout(TICK):
                    await channel.ended.wait()
            except TimeoutError:
                pass
            now = self._loop.time()
            channel.agent.tick(min(now - last, 4 * TICK))  # limited, as a blocked loop has received nothing meanwhile
            last = now
            channel.flush()


class _Channel(asyncio.Protocol):
    """The transport of an `Agent`."""

    def __init__(self, agent: Agent, keep_time: Callable[[], None]) -> None:
        self.agent = agent
        self.ended = asyncio.Event()
        self._keep_time = keep_time
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._keep_time()
        self.agent.receive(data)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def flush(self) -> None:
        """Write the agent's output. Close the transport once the agent is lost."""
        out, transport = self.agent.take(), self._transport
        if transport is None or transport.is_closing():
            return
        if out:
            transport.write(out)
        if self.agent.lost is not None:
            transport.close()
        elif transport.get_write_buffer_size() > MOST_UNSENT:
            self.agent.lost = "the controller does not take what it is sent"
            transport.abort()

    def close(self) -> None:
        """Close the transport after its output is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the transport at once."""
        if self._transport is not None:
            self._transport.abort()


class _Cable(asyncio.DatagramProtocol):
    """The socket of one host's port."""

    def __init__(self, arrived: Callable[[bytes], None]) -> None:
        self._arrived = arrived
        self._transport: asyncio.DatagramTransport | None = None
        self._host: tuple[str, int] | None = None
        """Address of the last sender of a frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        endpoint = transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            endpoint.setsockopt(socket.SOL_SOCKET, option, BUFFER)

    @property
    def address(self) -> tuple[str, int]:
        """The address at which the port takes frames."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._host = addr
        self._arrived(data)

    def error_received(self, exc: Exception) -> None:
        logger.debug("a host's port: %s", exc)  # the host is gone: frames to it are lost

    def send(self, frame: bytes) -> None:
        """Send a frame to the host, if one has sent before."""
        if self._transport is not None and self._host is not None:
            self._transport.sendto(frame, self._host)

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.close()
