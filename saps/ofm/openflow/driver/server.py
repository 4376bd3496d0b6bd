"""Runs the controller's OpenFlow server (asyncio): switches connect, and a `Listener` hears the changes of the
network."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from saps.ofm.network.topology import Link, Port
from saps.ofm.openflow.discovery import LinkDown, LinkUp, LoopFound
from saps.ofm.openflow.driver.session import Session
from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.errors import ChannelError
from saps.ofm.openflow.events import Limits
from saps.ofm.openflow.hosts import HostGone, HostSeen
from saps.ofm.openflow.tracker import Sighting, Tracker
from saps.ofm.openflow.values import PacketIn, PortChange, PortInfo, PortStatus, Role

logger = logging.getLogger(__name__)

PORT = 6653
"""The registered port of OpenFlow (IANA)."""
LAST_PORT = 0xFFFFFF00
"""Highest port number that is not reserved (OFPP_MAX)."""
MOST_PORTS = 8192
"""Most ports of one switch; the connection of a switch with more is closed. Each port costs 0.3 KiB, and a probe each
round."""
TICK = 0.25
"""Period of timer checks in seconds. A larger value makes timeouts coarser, a smaller one costs some processor time for
each switch."""


class Listener(Protocol):
    """Receives the server's events, on the event loop. Calls must return soon."""

    def switch_up(self, switch: Switch) -> None:
        """A switch is connected and has the base flows. After an earlier connection it has the tables it had, or
        none."""

    def switch_down(self, dpid: int) -> None:
        """A switch's connection has ended. It may continue to forward by its tables, and reconnect soon."""

    def switch_gone(self, dpid: int) -> None:
        """A switch did not reconnect in time; its links have been reported down."""

    def port_status(self, dpid: int, status: PortStatus) -> None:
        """A port was added, removed or changed, perhaps only in irrelevant details: switches often report a change
        twice."""

    def link_up(self, link: Link) -> None:
        """Probes cross a link both ways."""

    def link_down(self, link: Link) -> None:
        """A port of the link is down, probes do not cross it, or it leads elsewhere now."""

    def host_seen(self, host: HostSeen) -> None:
        """A packet has shown the place of a host, which may be known already."""

    def host_gone(self, host: HostGone) -> None:
        """A host's port is down, or leads to a switch: the place of the host is unknown."""

    def loop_found(self, a: Port, b: Port) -> None:
        """A cable joins two ports of one switch. Its end is not told, except that a port is down or removed."""


class Roles(Protocol):
    """Decides what one of several controllers may do to a switch."""

    async def agree(self, switch: Switch) -> bool:
        """Agree on a role with a switch that has connected. Return whether this controller may change its tables.
        Raises `ChannelError`."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings and limits of one server."""

    limits: Limits = field(default_factory=Limits)
    probe_interval: float = 2.0
    """Seconds between the probes of a port. A link that fails without a port change is noticed after five of them. A
    smaller value costs packets: one out for each port, one in for each end of a link."""
    grace: float = 10.0
    """Seconds that a lost switch has to reconnect until its links are given up."""
    most: int = 1024
    """Most connections at a time. A switch of 48 ports costs 15 KiB, a table being read 1.3 KiB for each entry."""


class OpenFlowServer:
    """The controller's OpenFlow server: accepts switches from `start` to `close`. It is also an async context manager,
    and a `session.Owner`."""

    def __init__(
        self,
        host: str,
        port: int,
        listener: Listener,
        settings: ServerSettings | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        roles: Roles | None = None,
    ) -> None:
        """With `tls`, switches connect by TLS (OpenFlow 1.3.5, 6.3.3), and show a certificate if it requires one.
        `roles` negotiates with other controllers; None: this is the only controller."""
        self._address = (host, port)
        self._tls = tls
        self._listener = listener
        self._settings = settings or ServerSettings()
        self._roles = roles
        self._tracker = self._new_tracker()
        self._sessions: set[Session] = set()
        self._up: dict[int, tuple[Session, Switch]] = {}
        """The switches that the listener knows to be connected."""
        self._missed: dict[int, float] = {}
        """Seconds left for each lost switch to reconnect."""
        self._unprobed = 0.0
        """Seconds since the last round of probes."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def switches(self) -> Mapping[int, Switch]:
        """The connected switches by dpid."""
        return {dpid: switch for dpid, (_, switch) in self._up.items()}

    @property
    def away(self) -> set[int]:
        """The lost switches that may still reconnect in time. Their links exist."""
        return set(self._missed)

    @property
    def links(self) -> set[Link]:
        """The links that exist now."""
        return self._tracker.links.links

    def _new_tracker(self) -> Tracker:
        return Tracker(secrets.token_bytes(32), ttl=round(5 * self._settings.probe_interval) or 1)

    def renew(self) -> None:
        """Forget all links and hosts without an event, and discover them again. A slave has received no news of
        them."""
        self._tracker = self._new_tracker()
        for _, switch in self._up.values():
            for port in list(switch.ports.values()):
                self._probe(switch, port)

    async def start(self) -> int:
        """Listen and return the port. Raises `OSError` if the address is not available."""
        loop = asyncio.get_running_loop()
        limits = self._settings.limits
        self._server = await loop.create_server(lambda: Session(self, limits), *self._address, ssl=self._tls)
        self._spawn(self._watch())
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close all connections. Switches keep their tables and continue to forward."""
        if self._server is not None:
            self._server.close()
        for session in list(self._sessions):
            session.close("the controller stops")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- sessions

    def opened(self, session: Session) -> None:
        """See `session.Owner`, also for the following three."""
        self._sessions.add(session)
        if len(self._sessions) > self._settings.most:
            session.close(f"there are {self._settings.most} connections")

    def ready(self, session: Session, switch: Switch) -> None:
        if len(switch.ports) > MOST_PORTS:
            session.close(f"it has more than {MOST_PORTS} ports")
            return
        self._spawn(self._welcome(session, switch))

    async def _welcome(self, session: Session, switch: Switch) -> None:
        """Give a switch the base flows if this controller may change it, and then report it."""
        try:
            if self._roles is None or await self._roles.agree(switch):
                await switch.put_base()
        except ChannelError as error:
            logger.warning("switch %s refuses the base flows: %s", session.label, error)
            session.close("it does not take the base flows")
            return
        if session not in self._sessions:
            return
        before = self._up.get(switch.dpid)
        if before is not None:
            before[0].close("it has connected anew")
        self._missed.pop(switch.dpid, None)
        self._up[switch.dpid] = (session, switch)
        logger.info("switch %s is up: %s, %d ports", session.label, switch.model, len(switch.ports))
        self._tell(self._listener.switch_up, switch)
        for at in self._tracker.ports(switch.dpid):
            port = switch.ports.get(at.port)
            if port is None or not port.up:
                self._report(self._tracker.port_lost(at))
        for port in list(switch.ports.values()):
            self._probe(switch, port)

    def heard(self, session: Session, event: PacketIn | PortStatus) -> None:
        switch = session.switch
        assert switch is not None
        known = self._up.get(switch.dpid, (None, None))[0] is session
        if isinstance(event, PortStatus):
            self._port_status(session, switch, event, known)
        elif known:
            self._packet_in(switch, event)

    def closed(self, session: Session) -> None:
        self._sessions.discard(session)
        switch = session.switch
        if switch is not None and self._up.get(switch.dpid, (None, None))[0] is session:
            del self._up[switch.dpid]
            self._missed[switch.dpid] = self._settings.grace
            self._tell(self._listener.switch_down, switch.dpid)

    # ---- what switches tell

    def _port_status(self, session: Session, switch: Switch, status: PortStatus, known: bool) -> None:
        port = status.port
        lost = status.change is PortChange.REMOVED
        if lost:
            switch.ports.pop(port.number, None)
        else:
            switch.ports[port.number] = port
            if len(switch.ports) > MOST_PORTS:
                session.close(f"it has more than {MOST_PORTS} ports")
                return
        if not known:
            return
        self._tell(self._listener.port_status, switch.dpid, status)
        if lost or not port.up:
            self._report(self._tracker.port_lost(Port(switch.dpid, port.number)))
        else:
            self._probe(switch, port)

    def _packet_in(self, switch: Switch, packet: PacketIn) -> None:
        at = Port(switch.dpid, packet.port)
        events, back = self._tracker.frame(at, packet.frame)
        self._report(events)
        if back and packet.port in switch.ports:
            self._probe(switch, switch.ports[packet.port])

    def _report(self, events: Sequence[Sighting]) -> None:
        for event in events:
            match event:
                case LinkUp(link):
                    self._tell(self._listener.link_up, link)
                case LinkDown(link):
                    self._tell(self._listener.link_down, link)
                case LoopFound(a, b):
                    self._tell(self._listener.loop_found, a, b)
                case HostSeen():
                    self._tell(self._listener.host_seen, event)
                case HostGone():
                    self._tell(self._listener.host_gone, event)

    # ---- time

    def _probe(self, switch: Switch, port: PortInfo) -> bool:
        """Send a probe if the port can carry one and this controller is no slave. Return whether it was sent."""
        if port.up and port.number <= LAST_PORT and switch.granted is not Role.SLAVE:
            source = Port(switch.dpid, port.number)
            switch.packet_out(port.number, self._tracker.probe(source, port.mac))
            return True
        return False

    async def _watch(self) -> None:
        """Pass on the time. A blocked loop has received nothing meanwhile, so a long pause does not count in full."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(TICK)
            now = loop.time()
            self._tick(min(now - last, 4 * TICK))
            last = now

    def _tick(self, seconds: float) -> None:
        for session in list(self._sessions):
            session.tick(seconds)
        for dpid in list(self._missed):
            self._missed[dpid] -= seconds
            if self._missed[dpid] <= 0:
                del self._missed[dpid]
                self._report(self._tracker.switch_lost(dpid))
                self._tell(self._listener.switch_gone, dpid)
        self._unprobed += seconds
        if self._unprobed >= self._settings.probe_interval:
            self._unprobed = 0.0
            self._probe_all()

    def _probe_all(self) -> None:
        for dpid, (_, switch) in list(self._up.items()):
            for port in list(switch.ports.values()):
                if self._probe(switch, port):
                    self._report(self._tracker.probed(Port(dpid, port.number), set(self._up)))

    def _tell(self, hear: Callable[..., None], *what: object) -> None:
        """Call the listener. Its exceptions are logged and harm no connection."""
        try:
            hear(*what)
        except Exception:
            logger.exception("the listener failed in %s", hear.__name__)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
