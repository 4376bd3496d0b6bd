"""TCP links between brokers (asyncio): one connection for each direction, made when there is something to send.

`Links.flush` writes all frames queued for a link at once. A slow link first holds back this broker's publishers
(`on_congestion`); past `MAX_QUEUED` bytes it is broken, which `LinkUser.link_down` reports.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from saps.links.dialling import Dialling
from saps.links.inbound import Inbound
from saps.links.outbound import HIGH_WATER, MAX_QUEUED, Outbound
from saps.links.questions import GUEST, HANDSHAKE, LinkError, Meeting, NameInquiry, Question, StartInquiry
from saps.links.receiver import Receiver
from saps.links.side import Side
from saps.links.user import LinkUser
from saps.overlay.delivery.express import ends_a_link
from saps.overlay.frames.base import Frame
from saps.overlay.frames.ring import StartProbe, There
from saps.overlay.ring.keys import BrokerRef

if TYPE_CHECKING:
    from saps.identity.listener import SealedListener

__all__ = ["GUEST", "HIGH_WATER", "MAX_QUEUED", "LinkError", "Links"]

T = TypeVar("T")


class Congestion:
    """The congested links of a broker: one of them is enough to hold back its publishers."""

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        self._on_change = on_change
        self._links: set[Outbound] = set()

    def note(self, link: Outbound, is_congested: bool) -> None:
        before = bool(self._links)
        if is_congested:
            self._links.add(link)
        else:
            self._links.discard(link)
        if bool(self._links) != before:
            self._on_change(not before)


class Links:
    """All links of one broker."""

    def __init__(
        self,
        me: BrokerRef,
        order: str,
        user: LinkUser | None = None,
        *,
        on_congestion: Callable[[bool], None],
        express: Callable[[Frame], bool] | None = None,
        dscp: int = 0,
    ) -> None:
        """`user` receives what the links bring; it may be set later (`Side.user`). `express` returns whether a frame
        uses the express lane, a connection of its own (`saps.overlay.delivery.express`); None: there is no such lane.
        `dscp` is the code point of that lane's packets. `on_congestion` is called when publishers are to be held back,
        and when no longer."""
        self.side = Side(me, order, user, dscp=dscp)
        self.express = express
        self.congestion = Congestion(on_congestion)
        self._outbound: dict[BrokerRef, Outbound] = {}
        """By incarnation: hearing of a later one does not end the link to the present one."""
        self._expresses: dict[BrokerRef, Outbound] = {}
        self.dialling = Dialling()
        self._unwritten: set[Outbound] = set()
        """Links with frames for the next `flush`."""
        self.receiver = Receiver(self.side)
        self._listener: asyncio.Server | SealedListener | None = None

    async def listen(self, host: str, port: int) -> int:
        """Start to accept links and return the port. Raises `OSError` if the address is not available."""
        if self.side.identity is not None:
            self._listener, port = await self.side.identity.listen(
                lambda: Inbound(self.side, self.receiver), host, port
            )
            return port
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: Inbound(self.side, self.receiver), host, port, backlog=256, start_serving=False
        )
        self._listener = listener  # known before it listens: a start that is cancelled closes it
        await listener.start_serving()
        return int(listener.sockets[0].getsockname()[1])

    async def meet(self, host: str, port: int) -> BrokerRef:
        """Ask which broker listens at an address. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: Meeting(self.side.order, asked, self.side.admit), asked)

    async def whois(self, host: str, port: int, name: str) -> BrokerRef | None:
        """Ask the broker at an address for the broker of its mesh with this name. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef | None] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: NameInquiry(self.side.order, name, asked, self.side.admit), asked)

    async def start_probe(self, host: str, port: int, start_probe: StartProbe) -> There:
        """Ask which broker is at an address, and for the stage of its start. Raises `LinkError`."""
        asked: asyncio.Future[There] = asyncio.get_running_loop().create_future()
        return await self._ask(
            host, port, lambda: StartInquiry(self.side.order, start_probe, asked, self.side.admit), asked
        )

    async def _ask(self, host: str, port: int, question: Callable[[], Question[T]], asked: asyncio.Future[T]) -> T:
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(HANDSHAKE):
                loop = asyncio.get_running_loop()
                transport, _ = await loop.create_connection(question, host, port, **self.side.sealing())
                return await asked
        except TimeoutError:
            hint = "" if self.side.identity is not None else "; it may want TLS (links.tls, links.secret_file)"
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
        """Return by broker name: bytes written over links that are up, and the round trip in seconds if known."""
        found: dict[str, tuple[int, float | None]] = {}
        for link in [*self._expresses.values(), *self._outbound.values()]:
            if link.ready:
                before = found.get(link.to.name, (0, None))[0]
                found[link.to.name] = before + link.written, link.round_trip
        return found

    def review(self) -> None:
        """Close links whose certificates are no longer valid. Those made by this broker first send what is queued,
        unless the certificate is revoked."""
        identity = self.side.identity
        if identity is None:
            return
        for link in [*self._expresses.values(), *self._outbound.values()]:
            if link.sealed is None:
                continue
            if identity.revoked(link.sealed.shown):
                link.renew("its certificate is revoked", at_once=True)
            elif identity.clock() >= link.sealed.until:
                link.renew("a certificate has ended")
        for inbound in list(self.receiver.connections):
            if inbound.shown is not None and (fault := identity.fault(inbound.shown, identity.grace)) is not None:
                inbound.cut(fault)

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Queue a frame for the next `flush`."""
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
            if self.side.closing:
                return
            if self.dialling.full:
                asyncio.get_running_loop().call_soon(self.side.user.link_down, to)
                return
            link = lanes[to] = Outbound(self, to, express=lanes is self._expresses)
            self.dialling.begun(link)
        self._unwritten.add(link)
        link.send(frame)

    def _end_express(self, to: BrokerRef, frame: Frame) -> bool:
        """Send a frame that ends a link over the express lane as well, if there is one. Returns True if the common lane
        must wait until the other side knows of the express lane."""
        link = self._expresses.get(to)
        if link is None:
            return False
        self._queue(self._expresses, to, frame)
        if not link.ready:
            link.when_ready.append(frame)
        return not link.ready

    def express_ready(self, to: BrokerRef, frames: list[Frame]) -> None:
        """Send the frames that have waited for an express lane."""
        for frame in frames:
            self._queue(self._outbound, to, frame)
        self.flush()

    def flush(self) -> None:
        """Write the queued frames, one write for each link that is up; other links write as soon as they are up.

        Express lanes go first. A link that fails is broken and does not keep others from being written."""
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
        """Drop the links to a dead broker with all that is queued on them."""
        for lanes in (self._outbound, self._expresses):
            for link in [lane for lane in lanes.values() if lane.to.same_incarnation(to)]:
                link.abandon()
                self.forget(link)

    def forget(self, link: Outbound) -> None:
        """Remove a link that has ended."""
        self.dialling.ended(link)
        lanes = self._expresses if link.express else self._outbound
        if lanes.get(link.to) is link:
            del lanes[link.to]
        self.congestion.note(link, False)

    def broke(self, link: Outbound) -> None:
        """Handle a lost connection. The other lane ends too: its frames refer to link ids announced on this one."""
        self.forget(link)
        twin = (self._outbound if link.express else self._expresses).get(link.to)
        if twin is not None:
            twin.abandon()
            self.forget(twin)
        self.side.user.link_down(link.to)

    async def close(self) -> None:
        """Send what is queued, then close all connections."""
        self.side.closing = True
        if self._listener is not None:
            self._listener.close()
        for link in [*self._expresses.values(), *self._outbound.values()]:
            link.close()
        for inbound in list(self.receiver.connections):
            inbound.close()
        await self.dialling.settled()
        if self._listener is not None:
            await self._listener.wait_closed()
