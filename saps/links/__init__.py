"""TCP links between brokers (asyncio): one connection for each direction, made when there is something to send.

What is sent until `Links.flush` leaves in one write. A link that cannot keep up first holds back this broker's
publishers (`on_congestion`), then, past `MAX_QUEUED` bytes, is broken; whoever sent over it is told
(`LinkUser.link_down`).
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
    """Which links have more to send than they should; one is enough to hold the publishers back."""

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
        """`user` is told what they bring; it may come later (`Side.user`). `express`: which frames go by the express
        lane, a connection of its own (`saps.overlay.delivery.express`); None: none. `dscp`: of that lane's packets."""
        self.side = Side(me, order, user, dscp=dscp)
        self.express = express
        self.congestion = Congestion(on_congestion)
        self._outbound: dict[BrokerRef, Outbound] = {}
        """By life: that others tell of a later one does not end the link to the one that is there."""
        self._expresses: dict[BrokerRef, Outbound] = {}
        self.dialling = Dialling()
        self._unwritten: set[Outbound] = set()
        """The links with frames for the next `flush`."""
        self.receiver = Receiver(self.side)
        self._listener: asyncio.Server | SealedListener | None = None

    async def listen(self, host: str, port: int) -> int:
        """Accept links. Returns the port; raises OSError if the address cannot be had."""
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
        """Ask who listens at an address. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: Meeting(self.side.order, asked, self.side.admit), asked)

    async def whois(self, host: str, port: int, name: str) -> BrokerRef | None:
        """Ask the broker at an address which broker of its mesh has a name. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef | None] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: NameInquiry(self.side.order, name, asked, self.side.admit), asked)

    async def start_probe(self, host: str, port: int, start_probe: StartProbe) -> There:
        """Ask who is at an address, and how far its start is. Raises `LinkError`."""
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
        """By broker: bytes written to it over links that are up, and seconds to it and back."""
        found: dict[str, tuple[int, float | None]] = {}
        for link in [*self._expresses.values(), *self._outbound.values()]:
            if link.ready:
                before = found.get(link.to.name, (0, None))[0]
                found[link.to.name] = before + link.written, link.round_trip
        return found

    def review(self) -> None:
        """End the links that stand on certificates which do not hold any more; those made by this broker in order."""
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

    def forget(self, link: Outbound) -> None:
        """A link is no more."""
        self.dialling.ended(link)
        lanes = self._expresses if link.express else self._outbound
        if lanes.get(link.to) is link:
            del lanes[link.to]
        self.congestion.note(link, False)

    def broke(self, link: Outbound) -> None:
        """A connection was lost, and with it what the numbers sent over the other lane refer to."""
        self.forget(link)
        twin = (self._outbound if link.express else self._expresses).get(link.to)
        if twin is not None:
            twin.abandon()
            self.forget(twin)
        self.side.user.link_down(link.to)

    async def close(self) -> None:
        """Send what is queued, then close every connection."""
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
