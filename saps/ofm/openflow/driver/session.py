"""Drives one TCP connection of a switch (asyncio): passes bytes to its `Connection` machine and back, and answers to
the waiting callers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Any, Protocol, cast

from saps.ofm.openflow.connection import Connection
from saps.ofm.openflow.driver.switch import Switch
from saps.ofm.openflow.errors import NoAnswerError, RefusedError, SwitchGoneError
from saps.ofm.openflow.events import (
    Complaint,
    Done,
    Event,
    Fault,
    Limits,
    Lost,
    Overdue,
    Ready,
    Refusal,
)
from saps.ofm.openflow.requests import Mod, Question, Request
from saps.ofm.openflow.values import PacketIn, PortStatus, Role, SwitchError

logger = logging.getLogger(__name__)

HIGH_WATER = 1 << 20
"""Bytes waiting to be sent to one switch above which modifications wait and packets are dropped."""

MOST_UNSENT = 64 << 20
"""Bytes waiting to be sent to one switch at which the connection is aborted: the switch asks, but does not read the
answers."""
MUCH = 64 << 10
"""Bytes read at once after which other tasks of the loop run. Otherwise uvloop would read megabytes of a large table in
one go. 64 KiB are 400 flow entries, 12 ms."""
LEAVE_ACK = 1.0
"""Seconds to send the remaining output to a switch whose connection is closed."""


class Owner(Protocol):
    """Owns the sessions and receives their events."""

    def opened(self, session: Session) -> None:
        """A switch has connected."""

    def ready(self, session: Session, switch: Switch) -> None:
        """The session's handshake is done."""

    def heard(self, session: Session, event: PacketIn | PortStatus) -> None:
        """The switch has sent a packet or a port change."""

    def closed(self, session: Session) -> None:
        """The connection has ended. No call follows."""


class Session(asyncio.Protocol):
    """A switch's connection, and the channel of its `Switch` (`switch.Channel`)."""

    def __init__(self, owner: Owner, limits: Limits) -> None:
        self.switch: Switch | None = None
        """The switch; None until the handshake is done."""
        self._owner = owner
        self._machine = Connection(limits)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Futures of the answers to questions, by ticket."""
        self._commits: dict[int, asyncio.Future[tuple[Refusal, ...]]] = {}
        """Futures of the ends of transactions, by ticket."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._over = False

    @property
    def label(self) -> str:
        """The switch's name for log lines."""
        return f"{self.switch.dpid:016x} at {self._peer}" if self.switch else f"at {self._peer}"

    # ---- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        self._transport.set_write_buffer_limits(HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        # Without this the switch's delayed acknowledgement costs 40 ms for each transaction. asyncio does not set it on
        # all accepted sockets.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._owner.opened(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._handle(self._machine.receive(data))
        if len(data) >= MUCH and self._transport is not None and not self._over:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._handle(self._machine.ended())
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- the switch

    def ask(self, question: Question) -> asyncio.Future[Any]:
        """Send a question. Return a future of the answer, which raises `ChannelError`."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._over:
            answer.set_exception(self._gone())
        else:
            self._answers[self._machine.ask(question)] = answer
            self._flush()
        return answer

    def transact(self, mods: Sequence[Mod]) -> asyncio.Future[tuple[Refusal, ...]]:
        """Send modifications. Return a future of the refusals, done when all modifications are; it raises
        `ChannelError`. Raises `UnencodableError` at once."""
        commit: asyncio.Future[tuple[Refusal, ...]] = self._loop.create_future()
        if self._over:
            commit.set_exception(self._gone())
        else:
            self._commits[self._machine.transact(mods)] = commit
            self._flush()
        return commit

    def tell(self, request: Request) -> None:
        """Send a request without an answer, unless the switch cannot keep up. Raises `UnencodableError`."""
        if not self._over and self._writable.is_set():
            self._machine.tell(request)
            self._flush()

    async def writable(self) -> None:
        """Wait until the switch keeps up, or is gone."""
        await self._writable.wait()

    def _gone(self) -> SwitchGoneError:
        return SwitchGoneError(f"switch {self.label} is gone")

    # ---- the owner

    def tick(self, seconds: float) -> None:
        """Count `seconds` that have passed."""
        self._handle(self._machine.tick(seconds))

    def close(self, why: str) -> None:
        """End the connection; `why` completes "closed:" in the log."""
        self._end(logging.INFO, why)

    def _handle(self, events: Sequence[Event]) -> None:
        for event in events:
            if self._over:
                return
            match event:
                case Ready():
                    self.switch = Switch(self, event)
                    self._owner.ready(self, self.switch)
                case PacketIn() | PortStatus():
                    self._owner.heard(self, event)
                case Done():
                    self._done(event)
                case Overdue(ticket):
                    self._fail(ticket, NoAnswerError(f"switch {self.label} did not answer in time"))
                case Complaint(error):
                    self._complain(error)
                case Lost(fault, detail):
                    level = logging.INFO if fault is Fault.ENDED else logging.WARNING
                    self._end(level, f"{fault.value}{': ' if detail else ''}{detail}")
        self._flush()
        if self._transport is not None and self._transport.get_write_buffer_size() > MOST_UNSENT:
            self._end(logging.WARNING, "it does not take what it is sent")
            self._transport.abort()

    def _complain(self, error: SwitchError) -> None:
        if self.switch is not None and error.name == "OFPBRC_IS_SLAVE":
            self.switch.granted = Role.SLAVE
        logger.warning("switch %s reports an error: %s, message %s", self.label, error, error.data[:32].hex())

    def _done(self, done: Done) -> None:
        if (commit := self._commits.pop(done.ticket, None)) is not None:
            if not commit.done():
                commit.set_result(done.refusals)
        elif done.refusals and self.switch is not None:
            refusal = done.refusals[0]
            self._fail(done.ticket, RefusedError(self.switch.dpid, refusal.request, refusal.error))
        elif (answer := self._answers.pop(done.ticket, None)) is not None and not answer.done():
            answer.set_result(done.answer)

    def _fail(self, ticket: int, error: Exception) -> None:
        waiting = self._answers.pop(ticket, None) or self._commits.pop(ticket, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def _flush(self) -> None:
        if self._transport is not None and (out := self._machine.take()) and not self._transport.is_closing():
            self._transport.write(out)

    def _end(self, level: int, why: str) -> None:
        if self._over:
            return
        self._flush()
        self._over = True
        logger.log(level, "switch %s closed: %s", self.label, why)
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(LEAVE_ACK, self._transport.abort)
        for ticket in [*self._answers, *self._commits]:
            self._fail(ticket, SwitchGoneError(f"switch {self.label} is gone: {why}"))
        self._writable.set()
        self._owner.closed(self)
