"""A connection to another broker, which carries this broker's frames."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from typing import TYPE_CHECKING, NamedTuple, cast

from saps.links.dialling import Dialler
from saps.links.questions import GUEST, HANDSHAKE
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Locate
from saps.overlay.frames.framing import LOWEST_VERSION, FrameReader, WireError, agree, encode_into, hello
from saps.overlay.frames.versions import for_version, unanswered, version_of
from saps.overlay.ring.keys import BrokerRef

if TYPE_CHECKING:
    from saps.identity.verdict import Presented
    from saps.links import Links

logger = logging.getLogger(__package__)

HIGH_WATER = 1 << 20
"""Bytes queued on one link above which publishers are held back. More cost memory and delay for each slow peer."""
MAX_QUEUED = 64 << 20
"""Bytes queued on one link above which the link is broken."""
PIECE = 1 << 18
"""Most bytes passed to TLS at once: the write buffer's size does not include a piece that TLS has taken."""
_TCP_INFO = getattr(socket, "TCP_INFO", 11)
_RTT, _RTT_AT = struct.Struct("=I"), 68
"""`tcpi_rtt`, microseconds, in Linux's struct tcp_info."""


class Sealed(NamedTuple):
    """The certificates of a TLS connection."""

    shown: Presented
    """The peer's certificate."""
    until: float
    """When the first of both certificates expires, in seconds since the epoch."""


class Outbound(asyncio.Protocol):
    """The connection to one broker, and the frames queued for it."""

    def __init__(self, links: Links, to: BrokerRef, *, express: bool = False) -> None:
        self.to = to
        self.express = express
        self.when_ready: list[Frame] = []
        """Frames for the common lane that must wait until this express lane is ready."""
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._reader = FrameReader()
        self.written = 0
        """Bytes written since the start."""
        self.ready = False
        """Whether both sides have said hello."""
        self.sealed: Sealed | None = None
        """The certificates; None on a plain link."""
        self.version: int | None = None
        """The agreed protocol version, or None before the peer's hello."""
        self._waiting: list[Frame] = []
        """Frames of later protocol versions, queued until the peer's version is known."""
        self.over = False
        """Whether the link has ended for good."""
        self._handshake: asyncio.TimerHandle | None = None
        self._dialler = Dialler(self, links.side, links.dialling)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued."""
        return not self._buffer and not self._waiting

    def send(self, frame: Frame) -> None:
        needed = version_of(frame, LOWEST_VERSION)
        if needed > LOWEST_VERSION and self.version is None:
            self._waiting.append(frame)
        elif self.version is not None and needed > self.version:
            self._reword(frame, self.version)
        else:
            self._encode(frame)
        if not self.ready and len(self._buffer) > MAX_QUEUED:
            self.drop()

    def _encode(self, frame: Frame) -> None:
        try:
            encode_into(self._buffer, frame)
        except Exception:  # whatever is wrong with it, other links have nothing to do with it
            self.fail()

    def fail(self) -> None:
        """Break the link after an exception while writing, which is being handled: the receiver must not take the
        frames that follow for complete."""
        logger.exception("link to %s broken: cannot write", self.to.name)
        if self._transport is None:
            self.drop()
            return
        self._buffer = bytearray()
        self.ready = False
        self._transport.abort()

    def _reword(self, frame: Frame, version: int) -> None:
        """Send a simpler frame, or answer in the peer's place, if the peer does not speak the frame's version."""
        simpler = for_version(frame, version)
        if simpler is not None:
            self._encode(simpler)
        elif (answer := unanswered(frame)) is not None:
            asking = frame.origin if isinstance(frame, Locate) else self._links.side.me
            asyncio.get_running_loop().call_soon(self._answer, asking, answer)

    def _answer(self, asking: BrokerRef, answer: Frame) -> None:
        """Answer a question in the peer's place."""
        if asking == self._links.side.me:
            self._links.side.user.answered_for(self.to, answer)
        else:
            self._links.send(asking, answer)
            self._links.flush()

    def flush(self) -> None:
        """Write the queued frames."""
        if self._transport is None or not self._buffer:
            return
        buffer, self._buffer = self._buffer, bytearray()
        self.written += len(buffer)
        if self.sealed is None or len(buffer) <= PIECE:
            self._transport.write(buffer)
        else:
            whole = memoryview(buffer)
            for start in range(0, len(buffer), PIECE):
                self._transport.write(whole[start : start + PIECE])
        if self._transport.get_write_buffer_size() > MAX_QUEUED:
            logger.warning("link to %s broken: it is %d MiB behind", self.to.name, MAX_QUEUED >> 20)
            self._transport.abort()

    @property
    def round_trip(self) -> float | None:
        """The round trip in seconds as TCP has measured it; None where the kernel does not tell."""
        found = self._transport.get_extra_info("socket") if self._transport is not None else None
        if found is None:
            return None
        try:
            told = found.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RTT_AT + _RTT.size)
            return float(_RTT.unpack_from(told, _RTT_AT)[0]) / 1e6
        except (OSError, struct.error):
            return None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)
        links = self._links
        try:
            links.side.admit(transport, GUEST)
        except WireError as error:
            logger.warning("link to %s at %s refused: %s", self.to.name, self.to.address, error)
            transport.abort()
            return
        transport.write(hello(links.side.me, links.side.order, express=self.express, highest=links.side.speaks))
        self._handshake = asyncio.get_running_loop().call_later(HANDSHAKE, transport.abort)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if self.ready or transport is None:
            return
        try:
            self._reader.feed(data)
            theirs = self._reader.peer
            if theirs is None:
                return
            self.version = agree(theirs, self._links.side.order, self._links.side.speaks)
            shown = self._links.side.admit(transport, theirs.broker)
            if self._links.side.identity is not None and shown is not None:
                self.sealed = Sealed(shown, min(shown.ends, self._links.side.identity.credentials.own.ends))
        except WireError as error:
            logger.warning("link to %s at %s refused: %s", self.to.name, self.to.address, error)
            transport.abort()
            return
        if theirs.broker == GUEST:  # it is starting: not there for this broker
            transport.abort()
            return
        if theirs.broker != self.to:
            # Another incarnation of the broker, or another broker: what is queued was not meant for it.
            self._links.side.user.met(theirs.broker)
            transport.abort()
            return
        if self._handshake is not None:
            self._handshake.cancel()
        self.ready = True
        self._links.dialling.ended(self)
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.send(frame)
        self.flush()
        if self.when_ready:
            self._links.express_ready(self.to, self.when_ready)
            self.when_ready = []

    def pause_writing(self) -> None:
        self._links.congestion.note(self, True)

    def resume_writing(self) -> None:
        self._links.congestion.note(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError) and not self.ready:
            self._dialler.accuse(exc)
        self._transport = None
        self.ready = False
        if self._handshake is not None:
            self._handshake.cancel()
        if not self.over:
            self.over = True
            self._links.broke(self)

    def forget(self) -> None:
        """Remove the link."""
        self._links.forget(self)

    def drop(self) -> None:
        """Drop what is queued, and report the link as down."""
        self._buffer = bytearray()
        self._waiting = []
        if not self.over:
            self._links.side.user.link_down(self.to)

    def renew(self, why: str, *, at_once: bool = False) -> None:
        """Close the connection when everything is sent, or `at_once`; the next frame makes a new one."""
        if self._transport is None or self._transport.is_closing():
            return
        logger.info("link to %s ended: %s", self.to.name, why)
        if at_once:
            self._transport.abort()
            return
        self.flush()
        self.ready = False
        self._transport.close()

    def abandon(self) -> None:
        """End the link at once and drop what is queued: the peer is dead or has a newer incarnation."""
        self.over = True
        self._dialler.stop()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self.flush()
        self.over = True
        self._dialler.stop()
        if self._transport is not None:
            self._transport.close()
