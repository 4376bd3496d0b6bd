"""Short connections that ask a broker a question: its identity, the broker of a name, or the stage of its start."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from saps.overlay.frames.base import Frame
from saps.overlay.frames.framing import FrameReader, WireError, agree, encode_into, hello
from saps.overlay.frames.ring import Known, StartProbe, There, Whois
from saps.overlay.ring.keys import BrokerRef

GUEST = BrokerRef("", 0, "", "")
"""The reference in the hello of a guest: it asks questions and is no broker of the mesh."""

HANDSHAKE = 3.0
"""Limit in seconds until both sides of a connection have said hello."""

T = TypeVar("T")
Admit = Callable[[asyncio.BaseTransport | None, BrokerRef], object]


class LinkError(Exception):
    """A broker could not be reached; the text says why."""

    def __init__(self, text: str, refused: bool = False) -> None:
        """`refused`: the broker is there, but its configuration does not match this one's."""
        super().__init__(text)
        self.refused = refused


class Question(asyncio.Protocol, Generic[T]):
    """A connection made only to ask the broker that listens there."""

    def __init__(self, order: str, asked: asyncio.Future[T], admit: Admit) -> None:
        """`admit` raises `WireError` if the peer's certificate does not permit the identity that it claims."""
        self._order = order
        self._asked = asked
        self._admit = admit
        self._reader = FrameReader()
        self._transport: asyncio.BaseTransport | None = None
        self._admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
            if self._reader.peer is not None and not self._asked.done():
                agree(self._reader.peer, self._order)
                if not self._admitted:
                    self._admit(self._transport, self._reader.peer.broker)
                    self._admitted = True
                self.answered(self._reader.peer.broker, frames)
        except WireError as error:
            if not self._asked.done():
                self._asked.set_exception(LinkError(str(error), refused=True))

    def answered(self, broker: BrokerRef, frames: list[Frame]) -> None:
        """Handle frames of the broker, whose hello has arrived."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._asked.done():
            sealed = isinstance(exc, ssl.SSLError)
            why = f": {exc.reason}" if isinstance(exc, ssl.SSLError) else ""
            self._asked.set_exception(LinkError(f"the connection was closed{why}", refused=sealed))


class Meeting(Question[BrokerRef]):
    """Asks for the broker's identity, which its hello tells."""

    def answered(self, broker: BrokerRef, frames: list[Frame]) -> None:
        self._asked.set_result(broker)


class Inquiry(Question[T]):
    """Asks with a frame, as a guest."""

    def __init__(self, order: str, frame: Frame, asked: asyncio.Future[T], admit: Admit) -> None:
        super().__init__(order, asked, admit)
        self._frame = frame

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        question = bytearray(hello(GUEST, self._order))
        encode_into(question, self._frame)
        cast(asyncio.Transport, transport).write(question)  # uvloop's are no subclasses


class NameInquiry(Inquiry["BrokerRef | None"]):
    """Asks for the broker with a name."""

    def __init__(self, order: str, name: str, asked: asyncio.Future[BrokerRef | None], admit: Admit) -> None:
        super().__init__(order, Whois(name), asked, admit)

    def answered(self, broker: BrokerRef, frames: list[Frame]) -> None:
        for frame in frames:
            if isinstance(frame, Known):
                self._asked.set_result(frame.broker)
                return


class StartInquiry(Inquiry[There]):
    """Asks for the broker's identity, which its certificate must permit, and for the stage of its start."""

    def __init__(self, order: str, start_probe: StartProbe, asked: asyncio.Future[There], admit: Admit) -> None:
        super().__init__(order, start_probe, asked, admit)

    def answered(self, broker: BrokerRef, frames: list[Frame]) -> None:
        for frame in frames:
            if isinstance(frame, There):
                self._admit(self._transport, frame.broker)
                self._asked.set_result(frame)
                return
