"""The server's side of one MQTT connection: bytes in, packets out (MQTT 5.0 chapters 3 and 4; MQTT 3.1.1).

Pure: the driver calls `receive`, `pause_writing`, `resume_writing` and `lost`, writes what is in `outbound.out` at the
end of the turn, and closes the transport once `closing` is set and that is written.
"""

from __future__ import annotations

import logging

from saps.frontend.mqtt.access.authorizer import ANYBODY, Authorizer
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.packets import V5, Disconnect, PacketType
from saps.frontend.mqtt.codec.reasons import DISCONNECT_REASONS, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.codec.wire import Framer, fixed_header
from saps.frontend.mqtt.connection.connect import Opening, refuse
from saps.frontend.mqtt.connection.flow_control import FlowControl
from saps.frontend.mqtt.connection.keep_alive import KeepAlive
from saps.frontend.mqtt.connection.outbound import Outbound, Port
from saps.frontend.mqtt.connection.packet_handlers import HANDLERS
from saps.frontend.mqtt.connection.publish_handler import PublishHandler
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.orders import Tap, elsewhere
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
        "authorizer",
        "closing",
        "flow",
        "frontend",
        "keep_alive",
        "opening",
        "outbound",
        "peer",
        "port",
        "publishes",
        "session",
        "since",
        "tap",
    )

    def __init__(self, frontend: Frontend, port: Port, peer: str = "?", authorizer: Authorizer = ANYBODY) -> None:
        self.frontend = frontend
        self.port = port
        self.peer = peer
        """The client's address, for log lines."""
        self.authorizer = authorizer
        self.session: Session | None = None
        self.since = 0.0
        """When the client got its session, by the frontend's clock."""
        self.tap: Tap | None = None
        """Is told of the client's packets."""
        self.closing = False
        """Nothing more is read from the client; close the transport when what is to be written is."""
        self.opening: Opening | None = Opening(self)
        """Sees to CONNECT; None once the client has its session."""
        self.outbound = Outbound(self, frontend)
        self.flow = FlowControl(self, frontend)
        self.publishes = PublishHandler(self)
        self.keep_alive = KeepAlive(self)
        self._framer = Framer(frontend.fairness.unfinished)
        """Keeps what is not complete, not looked at yet, or sent before CONNACK, as it may be (3.1.4)."""
        frontend.connections.add(self)

    # ---- input

    def receive(self, data: bytes) -> None:
        """Handle what the client sent, after what had to wait. Never raises: a fault, its own or ours, closes the
        connection."""
        frontend, flow, framer = self.frontend, self.flow, self._framer
        data = framer.feed(data)
        pos, size = 0, len(data)
        self.keep_alive.heard = frontend.clock()
        postponed = False
        try:
            while pos < size and not self.closing:
                if self.opening is not None and self.opening.waiting:
                    if size - pos > frontend.limits.maximum_packet_size:
                        raise ProtocolError("too much before CONNACK", Reason.QUOTA_EXCEEDED)
                    postponed = True
                    break
                if flow.busy or (frontend.congestion.blocked and flow.wait_for_slow()):
                    postponed = True
                    flow.postpone()
                    break
                end = self._handle_next(data, pos, size)
                if end == pos:
                    if flow.busy:  # else it is not complete
                        postponed = True
                        flow.postpone()
                    break
                if self.tap is not None:
                    self.tap.received(self, data, pos, end)
                pos = end
            if not self.closing:
                if postponed:
                    framer.postpone(data, pos)
                elif pos < size:
                    framer.keep(data, pos)
                if framer.kept:
                    frontend.fairness.relieve()
                flow.after_input()
        except MqttError as error:
            self._fail(error, data[pos : pos + 16])
        except Exception:  # a fault of ours must not take down the other clients
            self.close_as_faulty()
        frontend.congestion.blocked.clear()

    def _handle_next(self, data: bytes, pos: int, size: int) -> int:
        """Handle the packet at `pos`, and perhaps those of its kind behind it. Returns where they end, or `pos` if it
        is not complete."""
        first = data[pos]
        if self.session is not None:
            if first >> 4 == PacketType.PUBLISH:
                return self.publishes.handle(data, pos)
            if first == 0x40 and (end := self.session.window.acknowledge(data, pos)) > pos:
                self.frontend.counts.handled += (end - pos) >> 2
                if self.session.queue.copies is not None or self.session.replay is not None:
                    self.session.pump()
                return end
        bounds = fixed_header(data, pos)
        if bounds is None:
            return pos
        body, end = bounds
        limits, opening = self.frontend.limits, self.opening
        early = opening is not None and not opening.accepted
        if end - pos > limits.maximum_packet_size or (early and end - pos > limits.maximum_connect_size):
            raise ProtocolError(f"a packet of {end - pos} bytes", Reason.PACKET_TOO_LARGE)
        if end > size:
            return pos
        self._handle(first, data, body, end)
        return end

    def _handle(self, first: int, data: bytes, body: int, end: int) -> None:
        """One complete packet, any but PUBLISH on a session."""
        session = self.session
        if session is None:
            assert self.opening is not None
            self.opening.begin(first, data, body, end)
            return
        kind = first >> 4
        if kind == PacketType.CONNECT:
            raise ProtocolError("a second CONNECT")
        self.frontend.counts.handled += 1
        packet = decode(first, data, body, end, self.outbound.version)
        handler = HANDLERS.get(kind)
        if handler is None:
            raise ProtocolError(f"{PacketType(kind).name} is not for a client to send now")
        handler(self, session, packet)

    # ---- the opening

    def entered(self, session: Session) -> None:
        """The client has its session."""
        self.session, self.opening = session, None
        self.since = self.frontend.clock()
        self.flow.begin_metering()
        self.keep_alive.begin()

    @property
    def user(self) -> str | None:
        """Who it is, where clients are asked."""
        return self.authorizer.user

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
        witness, opening = self.frontend.orders.witness, self.opening
        if witness is not None and opening is not None and opening.asked is not None:
            witness.refused(self, *opening.asked, reason, text)
        if text and self.frontend.fairness.may_log(self):
            logger.warning("MQTT client %s closed: %s (0x%02x %s)", self.label, text, reason, reason.name)
        self.end(with_will=reason is not Reason.SERVER_SHUTTING_DOWN)

    def close_as_faulty(self) -> None:
        """Close the connection because handling it has raised: to be called where that is caught."""
        logger.exception("MQTT client at %s closed after an internal error", self.peer)
        self.close(Reason.IMPLEMENTATION_SPECIFIC_ERROR)

    def give_up(self, now: float) -> None:
        """The client does not take its messages with QoS 1 and 2 in time."""
        self.close(Reason.QUOTA_EXCEEDED, "too slow: its queue is full")

    def lost(self) -> None:
        """The transport is gone."""
        if not self.closing:
            self.end(with_will=True)
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
            gone.keep_alive.stop()
        self.port, self.opening = _NOWHERE, None
        self.outbound.release(gone)
        self.flow.release(gone)
        self.publishes.release(gone)
        self.keep_alive.release(gone)

    def _fail(self, error: MqttError, start: bytes) -> None:
        """The client broke the protocol, in the packet that begins with the bytes `start`."""
        if self.session is None:
            refuse(self, error.reason, start)
        self.close(error.reason, str(error))

    def end(self, with_will: bool) -> None:
        """Nothing more is read from the client; its session goes on without it, `with_will` or not."""
        self.closing = True
        self.frontend.connections.discard(self)
        self._framer.drop()
        self.keep_alive.stop()
        self.frontend.turn.wake(self)
        self.outbound.waiters.release()
        session = self.session
        held = sum(count for _, count in self.outbound.release_held())
        if session is not None:
            session.dropped += held
        if session is not None and session.connection is self:
            self.frontend.sessions.detach(session, with_will)

    @property
    def unfinished(self) -> int:
        """Bytes kept of packets that are not complete, or not looked at yet."""
        return self._framer.kept

    @property
    def address(self) -> str:
        """The client's IP address: what it shares with others that it may be."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def label(self) -> str:
        """Who it is, for log lines."""
        return f"{self.session.client_id!r} at {self.peer}" if self.session is not None else self.peer

    # ---- back-pressure

    def pause_writing(self) -> None:
        """The transport is over its high-water mark."""
        self.outbound.writable = False

    def resume_writing(self) -> None:
        """The transport has drained: send what waits, let the publishers continue."""
        self.outbound.resume()
        self.keep_alive.heard = self.frontend.clock()
        self.flow.update()
