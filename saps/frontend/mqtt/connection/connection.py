"""Runs the server's side of one MQTT connection: bytes in, packets out (MQTT 5.0 chapters 3 and 4; MQTT 3.1.1).

The module does no I/O. The driver calls `receive`, `pause_writing`, `resume_writing` and `lost`. At the end of the turn
it writes `output.out`, and then closes the transport if `closing` is set.
"""

from __future__ import annotations

import logging

from saps.frontend.mqtt.access.authorizer import ANYBODY, Authorizer
from saps.frontend.mqtt.codec.decode import decode
from saps.frontend.mqtt.codec.packets import V5, Disconnect, PacketType
from saps.frontend.mqtt.codec.reasons import DISCONNECT_REASONS, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.codec.wire import Framer, fixed_header
from saps.frontend.mqtt.connection.client_connection import ClientConnection
from saps.frontend.mqtt.connection.connect import Opening, refuse
from saps.frontend.mqtt.connection.output import Port
from saps.frontend.mqtt.connection.packet_handlers import HANDLERS
from saps.frontend.mqtt.connection.publish_handler import PublishHandler
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.session.session import Session

logger = logging.getLogger(__name__)


class Connection(ClientConnection):
    """One client's connection, from its first byte to its end."""

    __slots__ = (
        "__weakref__",
        "_framer",
        "frontend",
        "opening",
        "publishes",
    )

    def __init__(self, frontend: Frontend, port: Port, peer: str = "?", authorizer: Authorizer = ANYBODY) -> None:
        super().__init__(frontend, port, peer, authorizer)
        self.frontend = frontend
        self.opening: Opening | None = Opening(self)
        """Handles the CONNECT; None once the client has entered its session."""
        self.publishes = PublishHandler(frontend, self.outbound, self.flow, authorizer)
        self._framer = Framer(frontend.fairness.unfinished)
        """Keeps input that is incomplete, not handled yet, or sent before CONNACK, which MQTT allows (3.1.4)."""
        frontend.connections.add(self)

    # ---- input

    def receive(self, data: bytes) -> None:
        frontend, flow, framer, output = self.frontend, self.flow, self._framer, self.output
        data = framer.feed(data)
        pos, size = 0, len(data)
        flow.heard = frontend.clock()
        frontend.congestion.blocked.clear()  # others' input, the mesh or a timer has met them
        postponed = False
        try:
            while pos < size and not output.closing:
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
                if output.tap is not None:
                    output.tap.received(output.client_id, data, pos, end)
                pos = end
            if not output.closing:
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
                return self.publishes.handle(self.session, data, pos)
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
        self.session, self.outbound.agent, self.opening = session, session, None
        self.output.client_id, self.output.queue = session.client_id, session.queue
        self.since = self.frontend.clock()
        self.flow.begin(session.publisher)
        self.keep_alive.begin(self.authorizer.left)

    # ---- the end

    def close(self, reason: Reason, text: str = "") -> None:
        if self.closing:
            return
        if self.session is not None and self.outbound.version == V5:
            allowed = reason if reason in DISCONNECT_REASONS else Reason.UNSPECIFIED_ERROR
            properties = self.frontend.orders.elsewhere(self, reason)
            if not self.outbound.answer(Disconnect(allowed, properties)) and properties:
                self.outbound.answer(Disconnect(allowed))
        witness, opening = self.frontend.orders.witness, self.opening
        if witness is not None and opening is not None and opening.asked is not None:
            witness.refused(self, *opening.asked, reason, text)
        if text and self.frontend.fairness.may_log(self):
            logger.warning("MQTT client %s closed: %s (0x%02x %s)", self.label, text, reason, reason.name)
        self.end(with_will=reason is not Reason.SERVER_SHUTTING_DOWN)

    def close_as_faulty(self) -> None:
        logger.exception("MQTT client at %s closed after an internal error", self.peer)
        self.close(Reason.IMPLEMENTATION_SPECIFIC_ERROR)

    def lost(self) -> None:
        """Handle the loss of the transport, and break the reference cycles, so that the connection is freed at once."""
        if not self.closing:
            self.end(with_will=True)
        self.opening = None
        self.outbound.release()
        self.publishes.stop()

    def _fail(self, error: MqttError, start: bytes) -> None:
        """Close the connection of a client that broke the protocol in the packet with the first bytes `start`."""
        if self.session is None:
            refuse(self, error.reason, start)
        self.close(error.reason, str(error))

    def end(self, with_will: bool) -> None:
        """End the connection: stop reading the client, and detach its session. `with_will`: keep the will."""
        self.output.closing = True
        self.frontend.connections.discard(self)
        self._framer.drop()
        self.keep_alive.stop()
        self.output.wake()
        self.outbound.waiters.release()
        session = self.session
        held = sum(count for _, count in self.outbound.release_held())
        if session is not None:
            session.dropped += held
        if session is not None and session.connection is self:
            self.frontend.sessions.detach(session, with_will)

    @property
    def unfinished(self) -> int:
        return self._framer.kept

    # ---- back-pressure

    def pause_writing(self) -> None:
        """Stop sending: the transport is over its high-water mark."""
        self.outbound.writable = False

    def resume_writing(self) -> None:
        """Send the waiting messages, as the transport has drained, and let waiting publishers go on."""
        self.outbound.resume()
        if self.session is not None:
            self.session.pump()
        self.outbound.caught_up()
        self.flow.heard = self.frontend.clock()
        self.flow.update()
