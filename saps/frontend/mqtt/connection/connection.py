"""Runs the server's side of one MQTT connection: bytes in, packets out (MQTT 5.0 chapters 3 and 4; MQTT 3.1.1).

The module does no I/O. The driver calls `receive`, `pause_writing`, `resume_writing` and `lost`. At the end of the turn
it writes `outbound.out`, and then closes the transport if `closing` is set.
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
    """The port of a connection whose transport is lost. (A `Port`.)"""

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
        """The client's address and port, for log lines."""
        self.authorizer = authorizer
        self.session: Session | None = None
        self.since = 0.0
        """Time when the client entered its session, in seconds on the frontend's clock."""
        self.tap: Tap | None = None
        """Follows the client's packets, if set."""
        self.closing = False
        """Whether the connection ends: the client is not read, and the driver closes the transport after the output."""
        self.opening: Opening | None = Opening(self)
        """Handles the CONNECT; None once the client has entered its session."""
        self.outbound = Outbound(self, frontend)
        self.flow = FlowControl(self, frontend)
        self.publishes = PublishHandler(self)
        self.keep_alive = KeepAlive(self)
        self._framer = Framer(frontend.fairness.unfinished)
        """Keeps input that is incomplete, not handled yet, or sent before CONNACK, which MQTT allows (3.1.4)."""
        frontend.connections.add(self)

    # ---- input

    def receive(self, data: bytes) -> None:
        """Handle input of the client, after the input that had to wait.

        Never raises: a fault of the client or the broker closes the connection.
        """
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
                    if flow.busy:  # otherwise the packet is incomplete
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
        except Exception:  # a fault of the broker must not take down the other clients
            self.close_as_faulty()
        frontend.congestion.blocked.clear()

    def _handle_next(self, data: bytes, pos: int, size: int) -> int:
        """Handle the packet at `pos`, and perhaps the packets of its kind after it.

        Returns the position of their end, or `pos` if the packet is incomplete or has to wait.
        """
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
        """Handle one complete packet, except a PUBLISH on a session."""
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
        """Begin the client's session: meter its publications and watch its keep-alive interval."""
        self.session, self.opening = session, None
        self.since = self.frontend.clock()
        self.flow.begin_metering()
        self.keep_alive.begin()

    @property
    def user(self) -> str | None:
        """The client's user; None if it is anonymous."""
        return self.authorizer.user

    # ---- the end

    def close(self, reason: Reason, text: str = "") -> None:
        """Close the connection for `reason`. A client of MQTT 5.0 gets the reason; `text` goes to the log."""
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
        """Close the connection after an internal error. Call this in the `except` clause."""
        logger.exception("MQTT client at %s closed after an internal error", self.peer)
        self.close(Reason.IMPLEMENTATION_SPECIFIC_ERROR)

    def give_up(self, now: float) -> None:
        """Close the connection of a client that is too slow for its messages with QoS 1 and 2. (A timer's action.)"""
        self.close(Reason.QUOTA_EXCEEDED, "too slow: its queue is full")

    def lost(self) -> None:
        """Handle the loss of the transport."""
        if not self.closing:
            self.end(with_will=True)
        self._release()

    def _release(self) -> None:
        """Break the reference cycles, so that the connection is freed at once.

        Objects that still refer to a part of the connection then find a closed connection, `Frontend.gone`.
        """
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
        """Close the connection of a client that broke the protocol in the packet with the first bytes `start`."""
        if self.session is None:
            refuse(self, error.reason, start)
        self.close(error.reason, str(error))

    def end(self, with_will: bool) -> None:
        """End the connection: stop reading the client, and detach its session. `with_will`: keep the will."""
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
        """Bytes of kept input: incomplete packets, and packets that wait."""
        return self._framer.kept

    @property
    def address(self) -> str:
        """The client's IP address. Several clients may share it."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def label(self) -> str:
        """Client identifier and address for log lines."""
        return f"{self.session.client_id!r} at {self.peer}" if self.session is not None else self.peer

    # ---- back-pressure

    def pause_writing(self) -> None:
        """Stop sending: the transport is over its high-water mark."""
        self.outbound.writable = False

    def resume_writing(self) -> None:
        """Send the waiting messages, as the transport has drained, and let waiting publishers go on."""
        self.outbound.resume()
        self.keep_alive.heard = self.frontend.clock()
        self.flow.update()
