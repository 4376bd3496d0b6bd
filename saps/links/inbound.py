"""An accepted connection of another broker: its frames, or a guest's questions."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, cast

from saps.links.marking import mark
from saps.links.questions import GUEST, HANDSHAKE
from saps.overlay.delivery.express import Lane
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.framing import FrameReader, Hello, WireError, agree, encode_into, hello
from saps.overlay.frames.ring import Known, StartProbe, There, Whois
from saps.overlay.ring.keys import BrokerRef

if TYPE_CHECKING:
    from saps.identity.verdict import Presented
    from saps.links.receiver import Receiver
    from saps.links.side import Side

logger = logging.getLogger(__package__)


class Inbound(asyncio.Protocol):
    """A connection made by another broker, which carries its frames to this one."""

    def __init__(self, side: Side, receiver: Receiver) -> None:
        self.lane = Lane()
        self._side = side
        self._receiver = receiver
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._peer: BrokerRef | None = None
        self.shown: Presented | None = None
        """The peer's certificate once its hello has arrived; None on a plain link."""
        self.express = False
        self.begun = False
        """Whether a frame has come. Before that it may be an attempt to reach another incarnation of this broker."""
        self.over = False
        """Whether a later session has begun."""
        self._handshake: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        self._transport = transport
        self._receiver.opened(self)
        try:
            self._side.admit(transport, GUEST)  # before a word is said
        except WireError as error:
            self._refuse(transport, error)
            return
        transport.write(hello(self._side.shown, self._side.order, highest=self._side.speaks))
        self._handshake = asyncio.get_running_loop().call_later(HANDSHAKE, transport.abort)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            frames = self._reader.feed(data)
            if self._peer is None and self._reader.peer is not None:
                agree(self._reader.peer, self._side.order, self._side.speaks)
                self.shown = self._side.admit(transport, self._reader.peer.broker)
                self._greet(self._reader.peer)
            if self._peer is not None and frames and not self._side.closing and not self.over:
                if self._peer == GUEST:
                    self._inform(frames)
                elif self._side.hidden:  # it means an earlier incarnation
                    transport.abort()
                else:
                    self._receiver.arrived(self, self._peer, frames)
        except (WireError, ProtocolError) as error:
            self._refuse(transport, error)

    def _refuse(self, transport: asyncio.Transport, error: Exception) -> None:
        peer = transport.get_extra_info("peername")
        who = self._peer.name if self._peer is not None else f"{peer[0]}:{peer[1]}" if peer else "?"
        logger.warning("link from %s closed: %s", who, error)
        transport.abort()

    def _greet(self, theirs: Hello) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        self._peer, self.express = theirs.broker, theirs.express
        if theirs.express and self._transport is not None and self._side.dscp:
            made = self._transport.get_extra_info("socket")
            with socket.socket(fileno=os.dup(made.fileno())) as same:  # uvloop's own may not be changed
                mark(same, self._side.dscp)
        self._receiver.greeted(self, theirs.broker)

    def _inform(self, frames: list[Frame]) -> None:
        """Answer a guest's questions. Raises `ProtocolError` for any other frame."""
        for frame in frames:
            if isinstance(frame, StartProbe):
                self._side.admit(self._transport, frame.broker)
                self._answer(self._side.probed(frame))
            elif isinstance(frame, Whois):
                self._side.user.whois(frame.name, lambda broker: self._answer(Known(broker)))
            else:
                raise ProtocolError("a guest may only ask")

    def _answer(self, frame: Known | There) -> None:
        if self._transport is not None and not self._transport.is_closing():
            answer = bytearray()
            encode_into(answer, frame)
            self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.closed(self)
        if self._handshake is not None:
            self._handshake.cancel()

    def end(self) -> None:
        """End the session, since a later one has begun: frames that still arrive are ignored."""
        self.over = True
        if self._transport is not None:
            self._transport.abort()

    def cut(self, why: str) -> None:
        """Abort the connection and log why."""
        if self._transport is not None and not self._transport.is_closing():
            logger.warning("link from %s cut: %s", self._peer.name if self._peer is not None else "?", why)
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
