"""The controller's side of one OpenFlow 1.3 connection: bytes in, events out (OpenFlow 1.3.5, 6.3).

Pure. The driver hands in arriving bytes (`receive`), the passing of time (`tick`) and the end (`ended`). It carries out
the events that each of them returns, and writes what `take` returns. After `Lost` it closes the transport; no further
event follows.

    HELLO -- hello --> HANDSHAKE -- features, maker and ports --> READY
    any of them -- a `Fault` --> LOST
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from saps.ofm.openflow import encode as e
from saps.ofm.openflow import requests as r
from saps.ofm.openflow.decode import EchoRequest, Hello, Incoming, Part, Reply, decode
from saps.ofm.openflow.entries import MalformedError
from saps.ofm.openflow.events import Complaint, Done, Event, Fault, Limits, Lost, Overdue, Ready, Refusal
from saps.ofm.openflow.framing import HEADER, BadLengthError, Framer
from saps.ofm.openflow.requests import Mod, Question, Request
from saps.ofm.openflow.values import Features, PacketIn, PortStatus, SwitchError

VERSION = 4
"""Version number of OpenFlow 1.3 on the wire."""
ERROR = 1
"""Message type of an error, in every version."""


class State(Enum):
    """The stage of a connection."""

    HELLO = auto()
    HANDSHAKE = auto()
    READY = auto()
    LOST = auto()


@dataclass(slots=True)
class _Pending:
    """One question, or modifications ended by a barrier. Their transaction ids are consecutive."""

    first: int
    requests: tuple[Request, ...]
    deadline: float
    entries: list[object] = field(default_factory=list)
    size: int = 0
    """Length of the multipart reply so far, in bytes."""
    errors: dict[int, SwitchError] = field(default_factory=dict)
    """Errors by position in `requests`."""

    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(Refusal(self.requests[place], self.errors[place]) for place in sorted(self.errors))


class _BrokenError(Exception):
    """A fault that ends the connection."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


class Connection:
    """One switch's connection, from its first byte to its last."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.state = State.HELLO
        self._framer = Framer(limits.hello)
        self._out = bytearray()
        self._xid = 0
        self._time = 0.0
        """Present time: the seconds of all ticks."""
        self._heard = 0.0
        """Time of the last complete message."""
        self._probed = False
        """Whether an echo request has been sent since."""
        self._pending: dict[int, _Pending] = {}
        """Pending requests by ticket (the last transaction id), in order of their deadlines."""
        self._handshake: dict[int, object] = {}
        """Answers to the handshake's questions by ticket; None: not yet answered."""
        self._out += e.hello(self._take_xids(1))

    # ---- what the driver calls

    def take(self) -> bytes:
        """Return the bytes to write, and forget them."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def receive(self, data: bytes) -> list[Event]:
        """Handle bytes from the switch. Never raises because of them: a fault ends in `Lost`."""
        events: list[Event] = []
        if self.state is State.LOST:
            return events
        try:
            for message in self._framer.feed(data):
                events += self._message(message)
        except BadLengthError as error:
            events.append(self._lose(Fault.BAD_LENGTH, str(error)))
        except MalformedError as error:
            events.append(self._lose(Fault.MALFORMED, str(error)))
        except _BrokenError as broken:
            events.append(self._lose(broken.fault, broken.detail))
        return events

    def tick(self, seconds: float) -> list[Event]:
        """Count `seconds` that have passed: probe a silent switch, and give up overdue requests."""
        if self.state is State.LOST:
            return []
        self._time += seconds
        if self.state is not State.READY:
            if self._time < self.limits.handshake:
                return []
            return [self._lose(Fault.HANDSHAKE_TIMEOUT, f"in state {self.state.name.lower()}")]
        silence = self._time - self._heard
        if silence >= self.limits.idle + self.limits.timeout:
            return [self._lose(Fault.SILENT, f"for {silence:.0f} s")]
        if silence >= self.limits.idle and not self._probed:
            self._probed = True
            self._out += e.echo_request(self._take_xids(1))
        return list(self._overdue())

    def ended(self) -> list[Event]:
        """Handle the end of the transport."""
        if self.state is State.LOST:
            return []
        pending = self._framer.pending
        return [self._lose(Fault.TRUNCATED, f"{pending} bytes of it came") if pending else self._lose(Fault.ENDED, "")]

    # ---- what the controller asks

    def ask(self, question: Question) -> int:
        """Send a question. Return its ticket, which `Done` or `Overdue` will name."""
        ticket = self._take_xids(1)
        self._out += e.encode(question, ticket)
        self._pending[ticket] = _Pending(ticket, (question,), self._time + self.limits.answer)
        return ticket

    def transact(self, mods: Sequence[Mod]) -> int:
        """Send modifications and a barrier. Return their ticket. Raises `UnencodableError`; then nothing is sent."""
        first = self._take_xids(len(mods) + 1)
        ticket = first + len(mods)
        messages = [e.encode(mod, xid) for xid, mod in enumerate(mods, first)]
        self._out += b"".join(messages)
        self._out += e.encode(r.AskBarrier(), ticket)
        self._pending[ticket] = _Pending(first, (*mods, r.AskBarrier()), self._time + self.limits.answer)
        return ticket

    def tell(self, request: Request) -> None:
        """Send a request without an answer. Raises `UnencodableError`."""
        self._out += e.encode(request, self._take_xids(1))

    # ---- messages

    def _message(self, message: bytes) -> Iterator[Event]:
        self._heard = self._time
        self._probed = False
        xid = int.from_bytes(message[4:HEADER], "big")
        self._check_version(message, xid)
        incoming = decode(message)
        if self.state is State.HELLO:
            self._greet(incoming, xid)
            return
        match incoming:
            case EchoRequest(data):
                self._out += e.echo_reply(xid, data)
            case SwitchError():
                yield from self._error(incoming, xid)
            case Reply(question, value):
                yield from self._answer(xid, question, value)
            case Part():
                yield from self._part(incoming, xid, len(message))
            case PacketIn() | PortStatus() if self.state is State.READY:
                yield incoming
            case _:
                pass

    def _check_version(self, message: bytes, xid: int) -> None:
        if self.state is State.HELLO or message[0] == VERSION:
            return
        if message[1] != ERROR:
            self._out += e.bad_version(xid, message)
            raise _BrokenError(Fault.WRONG_VERSION, f"version {message[0]}")

    def _greet(self, incoming: Incoming, xid: int) -> None:
        """Settle the version by the first message (6.3.1). Raises `_BrokenError` without a common version."""
        if isinstance(incoming, SwitchError):
            raise _BrokenError(Fault.NO_COMMON_VERSION, f"the switch says {incoming}")
        if not isinstance(incoming, Hello):
            raise _BrokenError(Fault.NO_HELLO, type(incoming).__name__)
        fits = VERSION in incoming.versions if incoming.versions is not None else incoming.highest >= VERSION
        if not fits:
            self._out += e.hello_failed(xid, "OpenFlow 1.3 only")
            offered = sorted(incoming.versions or {incoming.highest})
            raise _BrokenError(Fault.NO_COMMON_VERSION, f"the switch offers {offered[:8]}, we speak {VERSION}")
        self.state = State.HANDSHAKE
        self._framer.limit = 0xFFFF
        self.tell(r.SendWholePackets())
        self._handshake = {self.ask(question): None for question in (r.AskFeatures(), r.AskMaker(), r.AskPorts())}

    def _error(self, error: SwitchError, xid: int) -> Iterator[Event]:
        if self.state is State.HANDSHAKE:
            raise _BrokenError(Fault.HANDSHAKE_REFUSED, str(error))
        # An error names the transaction id of its request: the position within the pending modifications.
        for ticket, pending in self._pending.items():
            if pending.first <= xid <= ticket:
                pending.errors.setdefault(xid - pending.first, error)
                if xid == ticket:
                    yield self._finish(ticket, None)
                return
        yield Complaint(error)

    def _answer(self, ticket: int, question: type[Question], value: object) -> Iterator[Event]:
        pending = self._pending.get(ticket)
        if pending is None:
            return
        if type(pending.requests[-1]) is not question:
            raise _BrokenError(Fault.WRONG_ANSWER, f"{question.__name__} was not asked")
        if ticket not in self._handshake:
            yield self._finish(ticket, value)
            return
        del self._pending[ticket]
        self._handshake[ticket] = value
        if None not in self._handshake.values():
            yield self._ready(*self._handshake.values())

    def _part(self, part: Part, ticket: int, size: int) -> Iterator[Event]:
        pending = self._pending.get(ticket)
        if pending is None:
            return
        if part.question is not type(pending.requests[-1]):
            raise _BrokenError(Fault.WRONG_ANSWER, "another multipart reply than asked for")
        pending.size += size
        if pending.size > self.limits.reply:
            raise _BrokenError(Fault.REPLY_TOO_LONG, f"more than {self.limits.reply} bytes")
        pending.entries += part.entries
        if not part.more:
            yield from self._answer(ticket, part.question, tuple(pending.entries))

    def _ready(self, features: object, maker: object, ports: object) -> Ready:
        assert isinstance(features, Features)
        assert isinstance(maker, tuple)
        assert isinstance(ports, tuple)
        if features.auxiliary:
            raise _BrokenError(Fault.AUXILIARY, f"number {features.auxiliary} of switch {features.dpid:016x}")
        if len(maker) != 2:
            raise _BrokenError(Fault.WRONG_ANSWER, "a description in several parts")
        self.state = State.READY
        self._handshake = {}
        return Ready(features, maker, ports)

    def _finish(self, ticket: int, answer: object) -> Done:
        pending = self._pending.pop(ticket)
        return Done(ticket, answer, pending.refusals())

    def _overdue(self) -> Iterator[Event]:
        late = [ticket for ticket, pending in self._pending.items() if pending.deadline <= self._time]
        for ticket in late:
            del self._pending[ticket]
            yield Overdue(ticket)

    def _lose(self, fault: Fault, detail: str) -> Lost:
        self.state = State.LOST
        self._pending.clear()
        return Lost(fault, detail)

    def _take_xids(self, count: int) -> int:
        """Return the first of `count` consecutive transaction ids. 0 is reserved for messages that answer nothing."""
        if self._xid + count > 0xFFFFFFFF:
            self._xid = 0
        first = self._xid + 1
        self._xid += count
        return first
