"""TCP links between brokers (asyncio): one connection for each direction, made when there is something to send.

What is sent until `Links.flush` leaves in one write. A link that cannot keep up first holds back this broker's
publishers (`on_congestion`), then, past `MAX_QUEUED` bytes, is broken; whoever sent over it is told
(`LinkUser.link_down`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from saps.links.inbound import Inbound
from saps.links.outbound import HIGH_WATER, MAX_QUEUED, Outbound
from saps.links.questions import GUEST, HANDSHAKE, Knocking, LinkError, Meeting, NameInquiry, Question
from saps.links.user import LinkUser, Nobody
from saps.overlay.delivery.express import Endings, ends_a_link
from saps.overlay.frames.base import Frame
from saps.overlay.frames.framing import VERSION, WireError
from saps.overlay.frames.ring import StartProbe, There
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.overlay.validation.senders import check_sender

if TYPE_CHECKING:
    from saps.identity.listener import SealedListener
    from saps.identity.live import LinkIdentity
    from saps.identity.verdict import Presented

__all__ = ["GUEST", "HIGH_WATER", "MAX_QUEUED", "LinkError", "Links"]

T = TypeVar("T")

DIALS = 256
"""Connections that are being made at once. More costs file descriptors when many brokers cannot be reached."""
UNMADE = 8192
"""Links, at most, that wait to be made; beyond it a broker cannot be reached. Each costs about 4 KiB, and what is to be
sent. More than a broker has to begin with at once."""


class Links:
    """All links of one broker."""

    def __init__(
        self, me: BrokerRef, order: str, user: LinkUser | None = None, *, on_congestion: Callable[[bool], None]
    ) -> None:
        """`user` is told what they bring; it may come later."""
        self.me = me
        self.order = order
        self._keys = KeyOrder(order)
        self.user: LinkUser = user or Nobody()
        self.express: Callable[[Frame], bool] | None = None
        """Which frames go by the express lane, a connection of its own (`saps.overlay.delivery.express`); None:
        none."""
        self.dscp = 0
        """Differentiated services code point of the express lane's packets."""
        self.on_start_probe: Callable[[StartProbe], There] = lambda start_probe: There(self.me, 2, 0.0)
        """Answers who knocks here."""
        self.hidden = False
        """This broker is not in a mesh yet: it answers knocks, and nobody else hears who it is."""
        self._on_congestion = on_congestion
        self._congested: set[Outbound] = set()
        self._outbound: dict[BrokerRef, Outbound] = {}
        """By life: that others tell of a later one does not end the link to the one that is there."""
        self._expresses: dict[BrokerRef, Outbound] = {}
        self.dialling = asyncio.Semaphore(DIALS)
        self._dials: set[asyncio.Task[None]] = set()
        """Attempts to make links that have not ended."""
        self._unmade: set[Outbound] = set()
        """Those that are not up yet."""
        self._unwritten: set[Outbound] = set()
        """The links with frames for the next `flush`."""
        self._inbound: set[Inbound] = set()
        self._endings = Endings()
        self._listener: asyncio.Server | SealedListener | None = None
        self.identity: LinkIdentity | None = None
        """What is shown to other brokers and demanded of them; None: links are plain."""
        self.speaks = VERSION
        """Highest version of the protocol."""
        self.closing = False

    async def listen(self, host: str, port: int) -> int:
        """Accept links. Returns the port; raises OSError if the address cannot be had."""
        if self.identity is not None:
            self._listener, port = await self.identity.listen(lambda: Inbound(self), host, port)
            return port
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Inbound(self), host, port, backlog=256, start_serving=False)
        self._listener = listener  # known before it listens: a start that is cancelled closes it
        await listener.start_serving()
        return int(listener.sockets[0].getsockname()[1])

    async def meet(self, host: str, port: int) -> BrokerRef:
        """Ask who listens at an address. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: Meeting(self.order, asked, self.admit), asked)

    async def whois(self, host: str, port: int, name: str) -> BrokerRef | None:
        """Ask the broker at an address which broker of its mesh has a name. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef | None] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: NameInquiry(self.order, name, asked, self.admit), asked)

    async def start_probe(self, host: str, port: int, start_probe: StartProbe) -> There:
        """Ask who is at an address, and how far its start is. Raises `LinkError`."""
        asked: asyncio.Future[There] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: Knocking(self.order, start_probe, asked, self.admit), asked)

    async def _ask(self, host: str, port: int, question: Callable[[], Question[T]], asked: asyncio.Future[T]) -> T:
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(HANDSHAKE):
                loop = asyncio.get_running_loop()
                transport, _ = await loop.create_connection(question, host, port, **self.sealing())
                return await asked
        except TimeoutError:
            hint = "" if self.identity is not None else "; it may want TLS (links.tls, links.secret_file)"
            raise LinkError(f"no answer{hint}") from None
        except ssl.SSLError as error:
            raise LinkError(f"TLS: {error.reason or error}", refused=True) from None
        except OSError as error:
            raise LinkError(os.strerror(error.errno) if error.errno else str(error)) from None
        finally:
            if not asked.cancel() and not asked.cancelled():
                asked.exception()  # it came too late for anybody to see it
            if transport is not None:
                transport.close()

    def traffic(self) -> dict[str, tuple[int, float | None]]:
        """By broker: bytes written to it over links that are up, and seconds to it and back."""
        found: dict[str, tuple[int, float | None]] = {}
        for link in [*self._expresses.values(), *self._outbound.values()]:
            if link.ready:
                before = found.get(link.to.name, (0, None))[0]
                found[link.to.name] = before + link.written, link.round_trip
        return found

    def sealing(self) -> dict[str, Any]:
        """What `create_connection` needs to know beside the address."""
        return self.identity.dial() if self.identity is not None else {}

    def admit(self, transport: asyncio.BaseTransport | None, peer: BrokerRef) -> Presented | None:
        """What a peer has shown that says to be this broker; None if links are plain. Raises `WireError` if it may not
        be that one."""
        if self.identity is None:
            return None
        if transport is None:
            raise WireError("the connection is gone")
        return self.identity.admit(transport, peer.name, peer.cluster)

    @property
    def shown(self) -> BrokerRef:
        """Who this broker says to be to those that connect."""
        return GUEST if self.hidden else self.me

    def review(self) -> None:
        """End the links that stand on certificates which do not hold any more; those made by this broker in order."""
        identity = self.identity
        if identity is None:
            return
        for link in [*self._expresses.values(), *self._outbound.values()]:
            if link.shown is not None and identity.revoked(link.shown):
                link.renew("its certificate is revoked", at_once=True)
            elif link.shown is not None and identity.clock() >= link.until:
                link.renew("a certificate has ended")
        for inbound in list(self._inbound):
            if inbound.shown is not None and (fault := identity.fault(inbound.shown, identity.grace)) is not None:
                inbound.cut(fault)

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Queue a frame; it leaves with the next `flush`."""
        if self.express is not None:
            if self.express(frame):
                self._queue(self._expresses, to, frame)
                return
            if ends_a_link(frame) and self._end_express(to, frame):
                return
        self._queue(self._outbound, to, frame)

    def _queue(self, lanes: dict[BrokerRef, Outbound], to: BrokerRef, frame: Frame) -> None:
        link = lanes.get(to)
        if link is None:
            if self.closing:
                return
            if len(self._unmade) >= UNMADE:
                asyncio.get_running_loop().call_soon(self.user.link_down, to)
                return
            link = lanes[to] = Outbound(self, to, express=lanes is self._expresses)
            self._unmade.add(link)
        self._unwritten.add(link)
        link.send(frame)

    def _end_express(self, to: BrokerRef, frame: Frame) -> bool:
        """The end goes by the express lane, too, if there is one. True: it will go by the common lane once the other
        side knows of the express lane, and not before."""
        link = self._expresses.get(to)
        if link is None:
            return False
        self._queue(self._expresses, to, frame)
        if not link.ready:
            link.when_ready.append(frame)
        return not link.ready

    def express_ready(self, to: BrokerRef, frames: list[Frame]) -> None:
        """What had to wait for an express lane may follow."""
        for frame in frames:
            self._queue(self._outbound, to, frame)
        self.flush()

    def flush(self) -> None:
        """Write what `send` has queued, one write for each link that is up; the others write once they are. Express
        lanes go first. A link that fails is broken, and keeps no other from being written."""
        links = list(self._unwritten)
        self._unwritten.clear()
        if self._expresses and len(links) > 1:
            links.sort(key=lambda link: not link.express)
        for link in links:
            if link.ready:
                try:
                    link.flush()
                except Exception:
                    link.fail()

    def drop(self, to: BrokerRef) -> None:
        """The broker is dead: what waits to be sent to it is thrown away."""
        for lanes in (self._outbound, self._expresses):
            for link in [lane for lane in lanes.values() if lane.to.same_incarnation(to)]:
                link.abandon()
                self.forget(link)

    def congested(self, link: Outbound, is_congested: bool) -> None:
        """More waits to be sent over a link than should, or no longer."""
        before = bool(self._congested)
        if is_congested:
            self._congested.add(link)
        else:
            self._congested.discard(link)
        if bool(self._congested) != before:
            self._on_congestion(not before)

    def dial(self, attempts: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Make a link; `close` waits until nobody does so any more."""
        task = asyncio.get_running_loop().create_task(attempts)
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)
        return task

    def made(self, link: Outbound) -> None:
        """A link is up."""
        self._unmade.discard(link)

    def forget(self, link: Outbound) -> None:
        """A link is no more."""
        self._unmade.discard(link)
        lanes = self._expresses if link.express else self._outbound
        if lanes.get(link.to) is link:
            del lanes[link.to]
        self.congested(link, False)

    def broke(self, link: Outbound) -> None:
        """A connection was lost, and with it what the numbers sent over the other lane refer to."""
        self.forget(link)
        twin = (self._outbound if link.express else self._expresses).get(link.to)
        if twin is not None:
            twin.abandon()
            self.forget(twin)
        self.user.link_down(link.to)

    async def close(self) -> None:
        """Send what is queued, then close every connection."""
        self.closing = True
        if self._listener is not None:
            self._listener.close()
        for link in [*self._expresses.values(), *self._outbound.values()]:
            link.close()
        for inbound in list(self._inbound):
            inbound.close()
        await asyncio.gather(*self._dials, return_exceptions=True)
        if self._listener is not None:
            await self._listener.wait_closed()

    def opened(self, inbound: Inbound) -> None:
        self._inbound.add(inbound)
        self._endings.opened(inbound.lane)

    def closed(self, inbound: Inbound) -> None:
        self._inbound.discard(inbound)
        self._hand_on(self._endings.closed(inbound.lane))

    def greeted(self, inbound: Inbound, peer: BrokerRef) -> None:
        """A broker that has connected has said who it is."""
        inbound.lane.peer = peer
        self._hand_on(self._endings.released())

    def _begin(self, inbound: Inbound, peer: BrokerRef) -> None:
        """The first frames have come by a connection: a new session. Not so with its hello, which also comes from who
        looks for another life of this broker, and then goes.

        The sender has given up the sessions before, and takes what it sent by them for lost. The network may still hold
        some of it (a cut, then a heal): it would be read by the numbers of the new session, so it must not count."""
        inbound.begun = True
        for other in self._inbound:
            if other is not inbound and other.begun and other.lane.peer == peer and other.express is inbound.express:
                other.end()
        (self.user.express_started if inbound.express else self.user.session_started)(peer)

    def arrived(self, inbound: Inbound, peer: BrokerRef, frames: list[Frame]) -> None:
        """Frames from a broker. Raises `ProtocolError` if they say what it cannot say."""
        check_sender(peer, frames, self._keys)
        if not inbound.begun:
            self._begin(inbound, peer)
        if any(map(ends_a_link, frames)):
            frames = self._endings.passed(inbound.lane, frames)
        if frames:
            self.user.receive(peer, frames)

    def _hand_on(self, ends: list[tuple[BrokerRef, Frame]]) -> None:
        for peer, frame in ends:
            if not self.closing:
                self.user.receive(peer, [frame])
