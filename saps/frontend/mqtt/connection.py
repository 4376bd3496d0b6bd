"""The server's side of one MQTT connection: bytes in, packets out (MQTT 5.0 chapters 3 and 4; MQTT 3.1.1).

Pure: the driver calls `receive`, `pause_writing`, `resume_writing` and `lost`, writes what is in `out` after each,
and closes the transport once `closing` is set and `out` is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import iter_unpack
from typing import TYPE_CHECKING

from saps.frontend.mqtt.budget import Rate
from saps.frontend.mqtt.connect import accept, refuse, refuse_level
from saps.frontend.mqtt.decode import decode
from saps.frontend.mqtt.detour import elsewhere
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.grants import Grants
from saps.frontend.mqtt.packets import (
    V5,
    Ack,
    Connect,
    Disconnect,
    PacketType,
    Pingresp,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.publisher import FEW_ALONE, Publisher
from saps.frontend.mqtt.reasons import DISCONNECT_REASONS, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.sender import Port
from saps.frontend.mqtt.wire import Framer, fixed_header

if TYPE_CHECKING:
    from saps.frontend.mqtt.auth.acl import Rights

logger = logging.getLogger(__name__)

Packets = tuple[int, bytes, int, int]
"""A packet as `Connection._handle` takes it: first byte, and where its body lies in the data."""
PACKET_COST = 128
"""Bytes it takes to keep one, beside its own."""


class Connection(Publisher):
    """One client's connection, from its first byte to its end."""

    user: str | None = None
    """Who it is, where clients are asked (`saps.frontend.mqtt.auth`)."""
    rights: Rights | None = None
    """What it may do; None: everything."""

    __slots__ = (
        "_framer",
        "_heard",
        "_holds",
        "_later",
        "_later_bytes",
        "_metered",
        "_postponed",
        "_rate",
        "_reading",
        "_throttled",
        "keep_alive",
        "peer",
    )

    def __init__(self, frontend: Frontend, port: Port, peer: str = "?") -> None:
        super().__init__(frontend, port)
        self.peer = peer
        """The client's address, for log lines."""
        self.keep_alive = 0.0
        """Seconds without a packet after which the client counts as lost; 0: never."""
        self._framer = Framer()
        self._heard = frontend.clock()
        self._holds = 0
        """Slow subscribers this publisher waits for."""
        self._postponed = False
        """The rest of an input that met a slow subscriber waits with this publisher."""
        self._reading = True
        self._rate = Rate(frontend.limits.message_rate) if frontend.limits.message_rate else None
        self._metered = 0
        """Publications the rate has been charged for."""
        self._throttled = False
        self._later: list[Packets] | None = None
        """While CONNECT waits for the session: what the client has sent meanwhile (it need not wait for CONNACK,
        3.1.4)."""
        self._later_bytes = 0
        frontend.connections.add(self)
        frontend.timers.at(self._heard + frontend.limits.connect_timeout, self._check_connected)

    # ---- input

    def receive(self, data: bytes) -> None:
        """Handle what the client sent. Never raises because of the bytes: a fault closes the connection."""
        data = self._framer.feed(data)
        pos, size = 0, len(data)
        if data and data[0] in FEW_ALONE:
            pos = size if self._publish_alone(data) else self._publish_few(data)
        frontend = self.frontend
        self._heard = frontend.clock()
        limit = frontend.limits.maximum_packet_size
        try:
            while pos < size and not self.closing:
                if frontend.blocked and self.wait_for_slow():
                    self._postponed = True
                    break
                first = data[pos]
                if first in _SHORTCUTS and (end := self._shortcut(first, data, pos, size)):
                    pos = end
                    continue
                bounds = fixed_header(data, pos)
                if bounds is None:
                    break
                body, end = bounds
                if end - pos > limit:
                    raise ProtocolError(f"a packet of {end - pos} bytes", Reason.PACKET_TOO_LARGE)
                if end > size:
                    break
                self._handle(first, data, body, end)
                pos = end
        except MqttError as error:
            self._fail(error, data[pos : pos + 16])
        if not self.closing:
            if self._postponed:
                self._framer.postpone(data, pos)
            else:
                self._framer.keep(data, pos)
            if frontend.blocked or self._postponed or frontend.publishers_paused or not self.writable:
                self._yield()
        frontend.blocked.clear()
        if self._rate is not None:
            self._meter(self._rate)

    def _shortcut(self, first: int, data: bytes, pos: int, size: int) -> int:
        """Handle a run of packets of one kind at once. Returns where it ends, or 0 if that cannot be done here."""
        return self._acknowledgements(data, pos, size) if first == 0x40 else self._publish_run(data, pos)

    def _acknowledgements(self, data: bytes, pos: int, size: int) -> int:
        """A run of PUBACKs without reason codes. Returns where it ends."""
        session = self.session
        if session is None or session.shares:
            return 0
        inflight = session.inflight
        end = pos
        for head, packet_id in iter_unpack(">HH", memoryview(data)[pos : size - (size - pos) % 4]):
            if head != 0x4002:
                break
            if inflight.get(packet_id) is not None:
                del inflight[packet_id]
            end += 4
        self.frontend.counts.handled += (end - pos) >> 2
        if session.queue or session.backlog:
            session.pump()
        return end if end > pos else 0

    def _handle(self, first: int, data: bytes, body: int, end: int) -> None:
        """One complete packet."""
        kind = first >> 4
        if self.session is None:
            self._greet(first, data, body, end)
        elif kind == PacketType.PUBLISH:
            self._publish(first, data, body, end)
        elif kind == PacketType.CONNECT:
            raise ProtocolError("a second CONNECT")
        else:
            self.frontend.counts.handled += 1
            packet = decode(first, data, body, end, self.version)
            handler = _HANDLERS.get(kind)
            if handler is None:
                raise ProtocolError(f"{PacketType(kind).name} is not for a client to send now")
            handler(self, packet)

    def _greet(self, first: int, data: bytes, body: int, end: int) -> None:
        """A packet of a client that has no session yet: CONNECT, and no other before it is answered or waits."""
        if self._later is not None:
            self._later_bytes += end - body + PACKET_COST
            if self._later_bytes > self.frontend.limits.maximum_packet_size:
                raise ProtocolError("too much before CONNACK", Reason.QUOTA_EXCEEDED)
            if not self._later:
                self.port.pause_reading()
            self._later.append((first, data, body, end))
            return
        if first >> 4 != PacketType.CONNECT:
            raise ProtocolError("the first packet is not CONNECT")
        packet = decode(first, data, body, end, V5)
        assert isinstance(packet, Connect)
        self.version = packet.version
        self._admit(packet)

    def _admit(self, packet: Connect) -> None:
        """Let the client in, now or later. Raises `ProtocolError` if that cannot be."""
        accept(self, packet)
        if self.session is not None:
            self._entered()

    def _entered(self) -> None:
        self._metered = self._session.publisher.published
        if self.keep_alive:
            self.frontend.timers.at(self._heard + self.keep_alive, self._check_keep_alive)

    def postpone(self) -> None:
        """CONNECT will be answered later, by `go_on`."""
        self._later = []

    def go_on(self, version: int, enter: Callable[[], None]) -> None:
        """Have CONNECT answered by `enter`, if the client is still there, and handle what came after it."""
        later, self._later = self._later or [], None
        if self.closing:
            return
        if later:
            self.port.resume_reading()
        try:
            enter()
            if self.session is not None:
                self._entered()
            for entry in later:
                if not self.closing:
                    self._handle(*entry)
        except MqttError as error:
            if self.session is None:
                refuse_level(self, error.reason, version)
            self.close(error.reason, str(error))
        except Exception:  # a fault of ours must not take down the other clients
            self.close_as_faulty()
        if not self.closing:
            self.receive(b"")

    def authorise(self, client_id: str, packet: Connect) -> None:
        """May the client have this session? Raises `ProtocolError` if not; sets `rights`."""

    # ---- other packets from the client

    def _pubrel(self, packet: Ack) -> None:
        incoming = self._session.incoming
        known = incoming is not None and incoming.pop(packet.packet_id, None) is not None
        reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        self.answer(Ack(PacketType.PUBCOMP, packet.packet_id, reason))

    def _puback(self, packet: Ack) -> None:
        self._session.acknowledged(packet.packet_id)

    def _pubrec(self, packet: Ack) -> None:
        if packet.reason >= 0x80:
            self._session.acknowledged(packet.packet_id)
        elif self._session.received(packet.packet_id) or self.version != V5:
            self.send_release(packet.packet_id)
        else:
            self.answer(Ack(PacketType.PUBREL, packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))

    def _pubcomp(self, packet: Ack) -> None:
        self._session.completed(packet.packet_id)

    def _subscribe(self, packet: Subscribe) -> None:
        Grants(self, self._session, packet).start()

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        session = self._session
        reasons = [
            int(Reason.SUCCESS if session.unsubscribe(f) else Reason.NO_SUBSCRIPTION_EXISTED) for f in packet.filters
        ]
        self.answer(Unsuback(packet.packet_id, reasons))

    def _pingreq(self, packet: object) -> None:
        self.answer(Pingresp())

    def _disconnect(self, packet: Disconnect) -> None:
        session = self._session
        expiry = packet.properties.get(Property.SESSION_EXPIRY)
        if expiry is not None:
            if expiry and not session.expiry:
                raise ProtocolError("DISCONNECT gives a session expiry to a session that had none")
            session.expiry = self.frontend.granted_expiry(expiry)
        self._end(with_will=packet.reason != Reason.SUCCESS)

    # ---- the end

    def close(self, reason: Reason, text: str = "") -> None:
        """Close the connection for `reason`; the client is told if it speaks MQTT 5."""
        if self.closing:
            return
        if self.session is not None and self.version == V5:
            allowed = reason if reason in DISCONNECT_REASONS else Reason.UNSPECIFIED_ERROR
            properties = elsewhere(self, reason)
            if not self.answer(Disconnect(allowed, properties)) and properties:
                self.answer(Disconnect(allowed))
        if text:
            logger.warning("MQTT client %s closed: %s (0x%02x %s)", self._label, text, reason, reason.name)
        self._end(with_will=reason is not Reason.SERVER_SHUTTING_DOWN)

    def close_as_faulty(self) -> None:
        """Close the connection because handling it has raised: to be called where that is caught."""
        logger.exception("MQTT client at %s closed after an internal error", self.peer)
        self.close(Reason.IMPLEMENTATION_SPECIFIC_ERROR)

    def taken_over(self) -> None:
        """The same client has connected anew (3.1.4)."""
        self.close(Reason.SESSION_TAKEN_OVER)

    def lost(self) -> None:
        """The transport is gone."""
        if not self.closing:
            self._end(with_will=True)

    def _fail(self, error: MqttError, start: bytes) -> None:
        """The client broke the protocol, in the packet that begins with the bytes `start`."""
        if self.session is None:
            refuse(self, error.reason, start)
        self.close(error.reason, str(error))

    def _end(self, with_will: bool) -> None:
        self.closing = True
        self.frontend.connections.discard(self)
        self.frontend.wake(self)
        self.release_waiters()
        session = self.session
        held = sum(count for _, count in self.release_held())
        if session is not None:
            session.dropped += held
        if session is not None and session.connection is self:
            self.frontend.detach(session, with_will)

    @property
    def _label(self) -> str:
        return f"{self.session.client_id!r} at {self.peer}" if self.session is not None else self.peer

    # ---- time

    def _check_connected(self, now: float) -> None:
        if self.session is None and self._later is None and not self.closing:
            self.close(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")

    def _check_keep_alive(self, now: float) -> None:
        if self.closing:
            return
        due = self._heard + self.keep_alive
        if not self._reading:
            due = now + self.keep_alive
        if due <= now:
            self.close(Reason.KEEP_ALIVE_TIMEOUT, "keep-alive timeout")
        else:
            self.frontend.timers.at(due, self._check_keep_alive)

    # ---- back-pressure towards the client as a publisher

    def _meter(self, rate: Rate) -> None:
        """Charge the rate for what the client has published; stop reading it if that was too much."""
        session, now = self.session, self.frontend.clock()
        if session is None or self._throttled or self.closing:
            return
        published = session.publisher.published
        rate.take(published - self._metered, now)
        self._metered = published
        wait = rate.wait(now)
        if wait:
            self._throttled = True
            self.update_reading()
            self.frontend.timers.at(now + wait, self._end_throttle)

    def _end_throttle(self, now: float) -> None:
        self._throttled = False
        self.update_reading()

    def wait_for_slow(self) -> bool:
        blocked = self.frontend.blocked
        for subscriber in blocked:
            self._holds += self.wait_for(subscriber)
        if self._holds:
            return True
        blocked.clear()
        return False

    def _yield(self) -> None:
        """After input that met a slow subscriber, a congested mesh, or a client that does not read its answers."""
        self.wait_for_slow()
        self.update_reading()

    def released(self) -> None:
        self._holds -= 1
        if self._postponed and not self._holds:  # it may be in the midst of another client's input
            self.frontend.timers.at(self.frontend.clock(), self._take_up)
        self.update_reading()

    def _take_up(self, now: float) -> None:
        """Go on with the rest of the input that was postponed."""
        if self.closing or self._holds or not self._postponed:
            return
        self._postponed = False
        try:
            self.receive(b"")
        except Exception:  # a fault of ours must not take down the other clients
            self.close_as_faulty()
        self.update_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._heard = self.frontend.clock()
        self.update_reading()

    def update_reading(self) -> None:
        """Read from the client, or stop for a while, as the state of the things it depends on asks for."""
        if self.closing or self.session is None:
            return
        reading = (
            not self._holds
            and not self._postponed
            and self.writable
            and self._awaiting <= self.frontend.limits.receive_maximum
            and not self._throttled
            and not (self.frontend.publishers_paused and self.held_back)
        )
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._heard = self.frontend.clock()
                self.port.resume_reading()
            else:
                self.port.pause_reading()


_SHORTCUTS = frozenset((0x30, 0x32, 0x40))
"""First bytes of the packets that come in runs: plain PUBLISH of QoS 0 and 1, and PUBACK."""

_HANDLERS: dict[int, Callable[..., None]] = {
    PacketType.PUBACK: Connection._puback,
    PacketType.PUBREC: Connection._pubrec,
    PacketType.PUBREL: Connection._pubrel,
    PacketType.PUBCOMP: Connection._pubcomp,
    PacketType.SUBSCRIBE: Connection._subscribe,
    PacketType.UNSUBSCRIBE: Connection._unsubscribe,
    PacketType.PINGREQ: Connection._pingreq,
    PacketType.DISCONNECT: Connection._disconnect,
}
