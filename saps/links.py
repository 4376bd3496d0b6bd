"""TCP links between brokers (asyncio): one connection for each direction, made when there is something to send.

What is sent until `Links.flush` leaves in one write. A link that cannot keep up first holds back this broker's
publishers (`on_congestion`), then, past `MAX_QUEUED` bytes, is broken; whoever sent over it is told by `on_down`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import TypeVar, cast

from saps.link_questions import GUEST, Inquiry, LinkError, Meeting, Question
from saps.overlay.express import Endings, Lane, ends_a_link
from saps.overlay.frames import Frame, Known, ProtocolError, Whois
from saps.overlay.keys import BrokerRef
from saps.wire import FrameReader, Hello, WireError, agree, encode_into, hello

__all__ = ["GUEST", "HIGH_WATER", "MAX_QUEUED", "LinkError", "Links"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

HIGH_WATER = 1 << 20
"""Bytes queued on one link above which publishers are held back. More costs memory and delay per slow peer."""
MAX_QUEUED = 64 << 20
"""Bytes queued on one link above which it is broken."""
HANDSHAKE = 3.0
"""Seconds a connection may take until both sides have said hello."""
BACKOFF = (0.05, 1.0)
"""Least and greatest wait in seconds before a peer that could not be reached is tried again; doubles each time."""

Receive = Callable[[BrokerRef, list[Frame]], None]
Answer = Callable[[BrokerRef | None], None]


def mark(made: socket.socket, dscp: int) -> None:
    """All that the socket sends from now on carries the differentiated services code point (RFC 2474)."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)


class Links:
    """All links of one broker. The callbacks get what `OverlayNode` wants to know."""

    def __init__(
        self,
        me: BrokerRef,
        order: str,
        *,
        on_frames: Receive,
        on_session: Callable[[BrokerRef], None],
        on_down: Callable[[BrokerRef], None],
        on_congestion: Callable[[bool], None],
        on_whois: Callable[[str, Answer], None],
    ) -> None:
        """`on_whois` finds the broker of a name, for guests."""
        self.me = me
        self.order = order
        self.on_frames = on_frames
        self.on_session = on_session
        self.on_down = on_down
        self.on_whois = on_whois
        self.express: Callable[[Frame], bool] | None = None
        """Which frames go by the express lane, a connection of its own (`saps.overlay.express`); None: none."""
        self.dscp = 0
        """Differentiated services code point of the express lane's packets."""
        self.on_express: Callable[[BrokerRef], None] = lambda peer: None
        """As `on_session`, for an express lane."""
        self._on_congestion = on_congestion
        self._congested: set[_Outbound] = set()
        self._outbound: dict[str, _Outbound] = {}
        self._expresses: dict[str, _Outbound] = {}
        self._unwritten: set[_Outbound] = set()
        """The links with frames for the next `flush`."""
        self._inbound: set[_Inbound] = set()
        self._endings = Endings()
        self._listener: asyncio.Server | None = None
        self.closing = False

    async def listen(self, host: str, port: int) -> int:
        """Accept links. Returns the port; raises OSError if the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Inbound(self), host, port, backlog=256)
        return int(self._listener.sockets[0].getsockname()[1])

    async def meet(self, host: str, port: int) -> BrokerRef:
        """Ask who listens at an address. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: Meeting(self.order, asked), asked)

    async def whois(self, host: str, port: int, name: str) -> BrokerRef | None:
        """Ask the broker at an address which broker of its mesh has a name. Raises `LinkError`."""
        asked: asyncio.Future[BrokerRef | None] = asyncio.get_running_loop().create_future()
        return await self._ask(host, port, lambda: Inquiry(self.order, name, asked), asked)

    async def _ask(self, host: str, port: int, question: Callable[[], Question[T]], asked: asyncio.Future[T]) -> T:
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(HANDSHAKE):
                transport, _ = await asyncio.get_running_loop().create_connection(question, host, port)
                return await asked
        except TimeoutError:
            raise LinkError("no answer") from None
        except OSError as error:
            raise LinkError(os.strerror(error.errno) if error.errno else str(error)) from None
        finally:
            if transport is not None:
                transport.close()

    def send(self, to: BrokerRef, frame: Frame) -> None:
        """Queue a frame; it leaves with the next `flush`."""
        if self.express is not None:
            if self.express(frame):
                self._queue(self._expresses, to, frame)
                return
            if ends_a_link(frame) and self._end_express(to, frame):
                return
        self._queue(self._outbound, to, frame)

    def _queue(self, lanes: dict[str, _Outbound], to: BrokerRef, frame: Frame) -> None:
        link = lanes.get(to.name)
        if link is None or link.to != to:
            if link is not None:
                link.abandon()
            link = lanes[to.name] = _Outbound(self, to, express=lanes is self._expresses)
        self._unwritten.add(link)
        link.send(frame)

    def _end_express(self, to: BrokerRef, frame: Frame) -> bool:
        """The end goes by the express lane, too, if there is one. True: it will go by the common lane once the other
        side knows of the express lane, and not before."""
        link = self._expresses.get(to.name)
        if link is None or link.to != to:
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
        lanes go first."""
        unwritten = self._unwritten
        if self._expresses and len(unwritten) > 1:
            for link in sorted(unwritten, key=_Outbound.common):
                if link.ready:
                    link.flush()
        else:
            for link in unwritten:
                if link.ready:
                    link.flush()
        unwritten.clear()

    def drop(self, to: BrokerRef) -> None:
        """The broker is dead: what waits to be sent to it is thrown away."""
        for lanes in (self._outbound, self._expresses):
            link = lanes.get(to.name)
            if link is not None and link.to == to:
                link.abandon()
                self.forget(link)

    def congested(self, link: _Outbound, is_congested: bool) -> None:
        """More waits to be sent over a link than should, or no longer."""
        before = bool(self._congested)
        if is_congested:
            self._congested.add(link)
        else:
            self._congested.discard(link)
        if bool(self._congested) != before:
            self._on_congestion(not before)

    def forget(self, link: _Outbound) -> None:
        """A link is no more."""
        lanes = self._expresses if link.express else self._outbound
        if lanes.get(link.to.name) is link:
            del lanes[link.to.name]
        self.congested(link, False)

    def broke(self, link: _Outbound) -> None:
        """A connection was lost, and with it what the numbers sent over the other lane refer to."""
        self.forget(link)
        twin = (self._outbound if link.express else self._expresses).get(link.to.name)
        if twin is not None and twin.to == link.to:
            twin.abandon()
            self.forget(twin)
        self.on_down(link.to)

    async def close(self) -> None:
        """Send what is queued, then close every connection."""
        self.closing = True
        if self._listener is not None:
            self._listener.close()
        for link in [*self._expresses.values(), *self._outbound.values()]:
            link.close()
        for inbound in list(self._inbound):
            inbound.close()
        if self._listener is not None:
            await self._listener.wait_closed()

    def opened(self, inbound: _Inbound) -> None:
        self._inbound.add(inbound)
        self._endings.opened(inbound.lane)

    def closed(self, inbound: _Inbound) -> None:
        self._inbound.discard(inbound)
        self._hand_on(self._endings.closed(inbound.lane))

    def greeted(self, inbound: _Inbound, peer: BrokerRef, express: bool) -> None:
        """A broker that has connected has said who it is."""
        inbound.lane.peer = peer
        if peer != GUEST:
            (self.on_express if express else self.on_session)(peer)
        self._hand_on(self._endings.released())

    def arrived(self, inbound: _Inbound, peer: BrokerRef, frames: list[Frame]) -> None:
        """Frames from a broker."""
        if any(map(ends_a_link, frames)):
            frames = self._endings.passed(inbound.lane, frames)
        if frames:
            self.on_frames(peer, frames)

    def _hand_on(self, ends: list[tuple[BrokerRef, Frame]]) -> None:
        for peer, frame in ends:
            if not self.closing:
                self.on_frames(peer, [frame])


class _Outbound(asyncio.Protocol):
    """The connection to one broker, and what waits to be sent over it."""

    def __init__(self, links: Links, to: BrokerRef, *, express: bool = False) -> None:
        self.to = to
        self.express = express
        self.when_ready: list[Frame] = []
        """What may go by the common lane once this one is ready."""
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reader = FrameReader()
        self.ready = False
        """Both sides have said hello."""
        self._done = False
        self._wait = BACKOFF[0]
        self._handshake: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._dial())

    def common(self) -> bool:
        """It is not an express lane."""
        return not self.express

    def send(self, frame: Frame) -> None:
        encode_into(self._buffer, frame)
        if not self.ready and len(self._buffer) > MAX_QUEUED:
            self._drop()

    def flush(self) -> None:
        """Write what is queued."""
        if self._transport is None or not self._buffer:
            return
        self._transport.write(self._buffer)
        self._buffer = bytearray()
        if self._transport.get_write_buffer_size() > MAX_QUEUED:
            logger.warning("link to %s broken: it is %d MiB behind", self.to.name, MAX_QUEUED >> 20)
            self._transport.abort()

    async def _dial(self) -> None:
        host, _, port = self.to.address.rpartition(":")
        while not self._done:
            try:
                async with asyncio.timeout(HANDSHAKE):
                    await self._connect(host.strip("[]"), int(port))
            except (OSError, TimeoutError):
                self._drop()
                await asyncio.sleep(self._wait)
                self._wait = min(2 * self._wait, BACKOFF[1])
                if not self._buffer:
                    # Nothing was sent meanwhile: the next frame starts anew.
                    self._links.forget(self)
                    return
            else:
                return

    async def _connect(self, host: str, port: int) -> None:
        if not self.express:
            await self._loop.create_connection(lambda: self, host, port)
            return
        family, kind, protocol, _, address = (await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            mark(made, self._links.dscp)
            await self._loop.sock_connect(made, address)
            await self._loop.create_connection(lambda: self, sock=made)
        except BaseException:
            made.close()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)
        transport.write(hello(self._links.me, self._links.order, express=self.express))
        self._handshake = self._loop.call_later(HANDSHAKE, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self.ready:
            return
        try:
            self._reader.feed(data)
            theirs = self._reader.peer
            if theirs is None:
                return
            agree(theirs, self._links.order)
        except WireError as error:
            logger.warning("link to %s at %s refused: %s", self.to.name, self.to.address, error)
            self._transport.abort()
            return
        if theirs.broker != self.to:
            # Another life of the broker, or another broker: what is queued was not meant for it.
            self._links.on_frames(theirs.broker, [])
            self._transport.abort()
            return
        if self._handshake is not None:
            self._handshake.cancel()
        self.ready = True
        self._wait = BACKOFF[0]
        self.flush()
        if self.when_ready:
            self._links.express_ready(self.to, self.when_ready)
            self.when_ready = []

    def pause_writing(self) -> None:
        self._links.congested(self, True)

    def resume_writing(self) -> None:
        self._links.congested(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.ready = False
        if self._handshake is not None:
            self._handshake.cancel()
        if not self._done:
            self._done = True
            self._links.broke(self)

    def _drop(self) -> None:
        """What is queued cannot be sent."""
        self._buffer = bytearray()
        if not self._done:
            self._links.on_down(self.to)

    def abandon(self) -> None:
        """The peer has a newer life."""
        self._done = True
        self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self.flush()
        self._done = True
        self._task.cancel()
        if self._transport is not None:
            self._transport.close()


class _Inbound(asyncio.Protocol):
    """A connection made by another broker: its frames to this one."""

    def __init__(self, links: Links) -> None:
        self.lane = Lane()
        self._links = links
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._peer: BrokerRef | None = None
        self._handshake: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._transport = transport
        self._links.opened(self)
        transport.write(hello(self._links.me, self._links.order))
        self._handshake = asyncio.get_running_loop().call_later(HANDSHAKE, transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            frames = self._reader.feed(data)
            if self._peer is None and self._reader.peer is not None:
                agree(self._reader.peer, self._links.order)
                self._greet(self._reader.peer)
            if self._peer is not None and frames and not self._links.closing:
                if self._peer == GUEST:
                    self._inform(frames)
                else:
                    self._links.arrived(self, self._peer, frames)
        except (WireError, ProtocolError) as error:
            peer = self._transport.get_extra_info("peername")
            who = self._peer.name if self._peer is not None else f"{peer[0]}:{peer[1]}" if peer else "?"
            logger.warning("link from %s closed: %s", who, error)
            self._transport.abort()

    def _greet(self, theirs: Hello) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        self._peer = theirs.broker
        if theirs.express and self._transport is not None and self._links.dscp:
            made = self._transport.get_extra_info("socket")
            with socket.socket(fileno=os.dup(made.fileno())) as same:  # uvloop's own may not be changed
                mark(same, self._links.dscp)
        self._links.greeted(self, theirs.broker, theirs.express)

    def _inform(self, frames: list[Frame]) -> None:
        """Answer a guest's questions. Raises `ProtocolError` if it does anything but ask."""
        for frame in frames:
            if not isinstance(frame, Whois):
                raise ProtocolError("a guest may only ask")
            self._links.on_whois(frame.name, self._answer)

    def _answer(self, broker: BrokerRef | None) -> None:
        if self._transport is not None and not self._transport.is_closing():
            answer = bytearray()
            encode_into(answer, Known(broker))
            self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.closed(self)
        if self._handshake is not None:
            self._handshake.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
