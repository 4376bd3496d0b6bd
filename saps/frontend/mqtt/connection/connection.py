"""The server's side of one MQTT connection: bytes in, packets out (MQTT 5.0 chapters 3 and 4; MQTT 3.1.1).

Pure: the driver calls `receive`, `pause_writing`, `resume_writing` and `lost`, writes what is in `outbound.out` at the
end of the turn, and closes the transport once `closing` is set and that is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from saps.agents.user import Rights
from saps.frontend.mqtt.access.authorizer import ANYBODY, Authorizer
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.packets import (
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
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import DISCONNECT_REASONS, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.codec.wire import Framer, fixed_header
from saps.frontend.mqtt.connection.connect import accept, refuse, refuse_level
from saps.frontend.mqtt.connection.flow_control import Intake
from saps.frontend.mqtt.connection.outbound import Outbound, Port
from saps.frontend.mqtt.connection.publish_handler import PublishHandler
from saps.frontend.mqtt.connection.redirect import elsewhere
from saps.frontend.mqtt.connection.subscribe_handler import Grants
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import Session

logger = logging.getLogger(__name__)


class _Nowhere:
    """The port of a connection whose transport is gone."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def flush(self) -> None:
        pass


_NOWHERE = _Nowhere()


class Connection:
    """One client's connection, from its first byte to its end."""

    __slots__ = (
        "__weakref__",
        "_framer",
        "_heard",
        "_timer",
        "_waiting",
        "accepted",
        "authorizer",
        "closing",
        "frontend",
        "intake",
        "keep_alive",
        "outbound",
        "peer",
        "port",
        "publishes",
        "rights",
        "session",
        "unfinished",
    )

    def __init__(self, frontend: Frontend, port: Port, peer: str = "?", authorizer: Authorizer = ANYBODY) -> None:
        self.frontend = frontend
        self.port = port
        self.peer = peer
        """The client's address, for log lines."""
        self.authorizer = authorizer
        self.rights: Rights | None = None
        """What the client may do; None: everything."""
        self.accepted = False
        """CONNECT is in order; its session may yet have to come from another broker."""
        self.session: Session | None = None
        self.closing = False
        """Nothing more is read from the client; close the transport when what is to be written is."""
        self.keep_alive = 0.0
        """Seconds without a packet after which the client counts as lost; 0: never."""
        self.outbound = Outbound(self, frontend)
        self.intake = Intake(self, frontend)
        self.publishes = PublishHandler(self)
        self._waiting = False
        """CONNECT is not answered yet. What the client sends meanwhile, as it may (3.1.4), waits, too."""
        self._framer = Framer()
        self.unfinished = 0
        """Bytes kept of a packet that is not complete, or not looked at yet."""
        self._heard = frontend.clock()
        frontend.connections.add(self)
        self._timer = frontend.timers.at(self._heard + frontend.limits.connect_timeout, self._check_connected)
        """Looks whether the client is still there."""

    # ---- input

    def receive(self, data: bytes) -> None:
        """Handle what the client sent, after what had to wait. Never raises: a fault, its own or ours, closes the
        connection."""
        frontend, intake, framer = self.frontend, self.intake, self._framer
        data = framer.feed(data)
        pos, size = 0, len(data)
        self._heard = frontend.clock()
        postponed = False
        try:
            while pos < size and not self.closing:
                if self._waiting:
                    if size - pos > frontend.limits.maximum_packet_size:
                        raise ProtocolError("too much before CONNACK", Reason.QUOTA_EXCEEDED)
                    postponed = True
                    break
                if intake.unfinished or (frontend.blocked and intake.wait_for_slow()):
                    postponed = True
                    intake.postpone()
                    break
                end = self._handle_next(data, pos, size)
                if end == pos:
                    break
                pos = end
            if not self.closing:
                if postponed:
                    framer.postpone(data, pos)
                elif pos < size:
                    framer.keep(data, pos)
                if framer.kept != self.unfinished:
                    self._count_unfinished(framer.kept)
                intake.after_input()
        except MqttError as error:
            self._fail(error, data[pos : pos + 16])
        except Exception:  # a fault of ours must not take down the other clients
            self.close_as_faulty()
        frontend.blocked.clear()

    def _handle_next(self, data: bytes, pos: int, size: int) -> int:
        """Handle the packet at `pos`, and perhaps those of its kind behind it. Returns where they end, or `pos` if it
        is not complete."""
        first = data[pos]
        if self.session is not None:
            if first >> 4 == PacketType.PUBLISH:
                return self.publishes.handle(data, pos)
            if first == 0x40 and (end := self._acknowledgements(self.session, data, pos, size)) > pos:
                return end
        bounds = fixed_header(data, pos)
        if bounds is None:
            return pos
        body, end = bounds
        limits = self.frontend.limits
        if end - pos > limits.maximum_packet_size or (not self.accepted and end - pos > limits.maximum_connect_size):
            raise ProtocolError(f"a packet of {end - pos} bytes", Reason.PACKET_TOO_LARGE)
        if end > size:
            return pos
        self._handle(first, data, body, end)
        return end

    def _count_unfinished(self, kept: int) -> None:
        """So many bytes wait for the rest of their packet."""
        total = self.frontend.fairness.unfinished
        total.used += kept - self.unfinished
        self.unfinished = kept
        if total.used > total.limit:
            self.frontend.fairness.relieve()

    def _acknowledgements(self, session: Session, data: bytes, pos: int, size: int) -> int:
        """PUBACKs without reason codes that follow each other. Returns where they end, or the first with which
        something is the matter."""
        if session.shares or session.repeats:
            return pos
        inflight = session.inflight
        end = pos
        while end + 4 <= size and data[end] == 0x40 and data[end + 1] == 2:
            packet_id = data[end + 2] << 8 | data[end + 3]
            copy = inflight.get(packet_id)
            if copy is None or copy[1].qos != 1:
                break
            del inflight[packet_id]
            end += 4
        self.frontend.counts.handled += (end - pos) >> 2
        if session.queue or session.backlog:
            session.pump()
        return end

    def _handle(self, first: int, data: bytes, body: int, end: int) -> None:
        """One complete packet, any but PUBLISH on a session."""
        if self.session is None:
            self._greet(first, data, body, end)
            return
        kind = first >> 4
        if kind == PacketType.CONNECT:
            raise ProtocolError("a second CONNECT")
        self.frontend.counts.handled += 1
        packet = decode(first, data, body, end, self.outbound.version)
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise ProtocolError(f"{PacketType(kind).name} is not for a client to send now")
        handler(self, packet)

    # ---- the opening

    def _greet(self, first: int, data: bytes, body: int, end: int) -> None:
        """The first packet of a client: CONNECT, and no other."""
        if first >> 4 != PacketType.CONNECT:
            raise ProtocolError("the first packet is not CONNECT")
        packet = decode(first, data, body, end, V5)
        assert isinstance(packet, Connect)
        self.outbound.version = packet.version
        known = self.authorizer.identify(packet, lambda: not self.closing, lambda found: self._found(packet, found))
        if known is None:
            self.wait()
        else:
            self._admit(packet, known)

    def _found(self, packet: Connect, known: bool) -> None:
        """It is known whether the client is whom it says to be."""
        self.go_on(packet.version, lambda: self._admit(packet, known))

    def _admit(self, packet: Connect, known: bool) -> None:
        """Let the client in, now or later. Raises `ProtocolError` if that cannot be."""
        if not known:
            raise self.authorizer.refusal(packet)
        accept(self, packet)

    def wait(self) -> None:
        """CONNECT will be answered later, by `go_on`."""
        self._waiting = True
        self.port.pause_reading()

    def go_on(self, version: int, enter: Callable[[], None]) -> None:
        """Have CONNECT answered by `enter`, or wait once more, and handle what came after it."""
        self._waiting = False
        if self.closing:
            return
        self.port.resume_reading()
        try:
            enter()
        except MqttError as error:
            if self.session is None:
                refuse_level(self, error.reason, version)
            self.close(error.reason, str(error))
        except Exception:  # a fault of ours must not take down the other clients
            self.close_as_faulty()
        if not self.closing:
            self.receive(b"")

    def entered(self, session: Session) -> None:
        """The client has its session."""
        self.session = session
        self.intake.begin_metering()
        self.frontend.timers.cancel(self._timer)
        if self.keep_alive:
            self._timer = self.frontend.timers.at(self._heard + self.keep_alive, self._check_keep_alive)

    @property
    def user(self) -> str | None:
        """Who it is, where clients are asked."""
        return self.authorizer.user

    # ---- other packets from the client

    def _pubrel(self, packet: Ack) -> None:
        incoming = self._session.incoming
        known = incoming is not None and incoming.pop(packet.packet_id, None) is not None
        reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        self.outbound.answer(Ack(PacketType.PUBCOMP, packet.packet_id, reason))

    def _puback(self, packet: Ack) -> None:
        self._session.acknowledged(packet.packet_id)

    def _pubrec(self, packet: Ack) -> None:
        if packet.reason >= 0x80:
            self._session.acknowledged(packet.packet_id, qos=2)
        elif self._session.received(packet.packet_id) or self.outbound.version != V5:
            self.outbound.send_release(packet.packet_id)
        else:
            self.outbound.answer(Ack(PacketType.PUBREL, packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))

    def _pubcomp(self, packet: Ack) -> None:
        self._session.completed(packet.packet_id)

    def _subscribe(self, packet: Subscribe) -> None:
        Grants(self, self._session, packet).start()

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        session = self._session
        reasons = [
            int(Reason.SUCCESS if session.unsubscribe(f) else Reason.NO_SUBSCRIPTION_EXISTED) for f in packet.filters
        ]
        self.outbound.answer(Unsuback(packet.packet_id, reasons))

    def _pingreq(self, packet: object) -> None:
        self.outbound.answer(Pingresp())

    def _disconnect(self, packet: Disconnect) -> None:
        session = self._session
        expiry = packet.properties.get(Property.SESSION_EXPIRY)
        if expiry is not None:
            if expiry and not session.expiry:
                raise ProtocolError("DISCONNECT gives a session expiry to a session that had none")
            session.expiry = self.frontend.granted_expiry(expiry, session.user)
        self._end(with_will=packet.reason != Reason.SUCCESS)

    # ---- the end

    def close(self, reason: Reason, text: str = "") -> None:
        """Close the connection for `reason`; the client is told if it speaks MQTT 5."""
        if self.closing:
            return
        if self.session is not None and self.outbound.version == V5:
            allowed = reason if reason in DISCONNECT_REASONS else Reason.UNSPECIFIED_ERROR
            properties = elsewhere(self, reason)
            if not self.outbound.answer(Disconnect(allowed, properties)) and properties:
                self.outbound.answer(Disconnect(allowed))
        if text and self.frontend.fairness.may_log(self):
            logger.warning("MQTT client %s closed: %s (0x%02x %s)", self.label, text, reason, reason.name)
        self._end(with_will=reason is not Reason.SERVER_SHUTTING_DOWN)

    def close_as_faulty(self) -> None:
        """Close the connection because handling it has raised: to be called where that is caught."""
        logger.exception("MQTT client at %s closed after an internal error", self.peer)
        self.close(Reason.IMPLEMENTATION_SPECIFIC_ERROR)

    def taken_over(self) -> None:
        """The same client has connected anew (3.1.4)."""
        self.close(Reason.SESSION_TAKEN_OVER)

    def give_up(self, now: float) -> None:
        """The client does not take its messages with QoS 1 and 2 in time."""
        self.close(Reason.QUOTA_EXCEEDED, "too slow: its queue is full")

    def lost(self) -> None:
        """The transport is gone."""
        if not self.closing:
            self._end(with_will=True)
        self._release()

    def _release(self) -> None:
        """Break the circles, so that all of it is freed at once: what still refers to a part of it finds a connection
        that is closed."""
        frontend = self.frontend
        gone = frontend.gone
        if gone is None:
            gone = frontend.gone = Connection(frontend, _NOWHERE)
            gone.closing = True
            frontend.connections.discard(gone)
            frontend.timers.cancel(gone._timer)
        self.port = _NOWHERE
        self.outbound.release(gone)
        self.intake.release(gone)
        self.publishes.release(gone)

    def _fail(self, error: MqttError, start: bytes) -> None:
        """The client broke the protocol, in the packet that begins with the bytes `start`."""
        if self.session is None:
            refuse(self, error.reason, start)
        self.close(error.reason, str(error))

    def _end(self, with_will: bool) -> None:
        self.closing = True
        self.frontend.connections.discard(self)
        self._framer.drop()
        self._count_unfinished(0)
        self.frontend.timers.cancel(self._timer)
        self.frontend.turn.wake(self)
        self.outbound.waiters.release()
        session = self.session
        held = sum(count for _, count in self.outbound.release_held())
        if session is not None:
            session.dropped += held
        if session is not None and session.connection is self:
            self.frontend.detach(session, with_will)

    @property
    def address(self) -> str:
        """The client's IP address: what it shares with others that it may be."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def label(self) -> str:
        """Who it is, for log lines."""
        return f"{self.session.client_id!r} at {self.peer}" if self.session is not None else self.peer

    @property
    def _session(self) -> Session:
        session = self.session
        assert session is not None
        return session

    # ---- time

    def _check_connected(self, now: float) -> None:
        if not self.accepted and not self.closing:
            self.close(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")

    def _check_keep_alive(self, now: float) -> None:
        if self.closing:
            return
        due = self._heard + self.keep_alive
        if not self.intake.reading:
            due = now + self.keep_alive
        if due <= now:
            self.close(Reason.KEEP_ALIVE_TIMEOUT, "keep-alive timeout")
        else:
            self._timer = self.frontend.timers.at(due, self._check_keep_alive)

    def heard(self) -> None:
        """The client is read again: until now it could not be heard."""
        self._heard = self.frontend.clock()

    # ---- back-pressure

    def pause_writing(self) -> None:
        """The transport is over its high-water mark."""
        self.outbound.writable = False

    def resume_writing(self) -> None:
        """The transport has drained: send what waits, let the publishers continue."""
        self.outbound.resume()
        self.heard()
        self.intake.update()

    @property
    def publishes_ordinary(self) -> bool:
        """It is not to be read while links are congested: it publishes, and not to priority topics alone."""
        session = self.session
        if session is None or not session.publisher.published:
            return False
        return self.publishes.ordinary or session.hub.priorities is None


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
