"""The server's side of one MQTT connection: bytes in, packets out (MQTT 5.0 chapters 3 and 4; MQTT 3.1.1).

Pure: the driver calls `receive`, `pause_writing`, `resume_writing` and `lost`, writes what is in `out` after each,
and closes the transport once `closing` is set and `out` is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from struct import iter_unpack

from saps.frontend.mqtt.connect import accept, refuse
from saps.frontend.mqtt.decode import check_publish_flags, decode
from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.grants import Grants
from saps.frontend.mqtt.outgoing import received_properties
from saps.frontend.mqtt.packets import (
    V5,
    Ack,
    Connect,
    Disconnect,
    PacketType,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from saps.frontend.mqtt.properties import Property, PropertyMap, decode_properties
from saps.frontend.mqtt.reasons import MalformedPacket, MqttError, ProtocolError, Reason
from saps.frontend.mqtt.sender import Port, Sender
from saps.frontend.mqtt.session import Session
from saps.frontend.mqtt.wire import Framer, Reader, decode_string, fixed_header
from saps.hub import Burst, Publication, Route, is_reserved
from saps.messages import Message, Reached
from saps.topics import topic_fault

logger = logging.getLogger(__name__)


class Connection(Sender):
    """One client's connection, from its first byte to its end."""

    __slots__ = (
        "_aliases_in",
        "_awaiting",
        "_framer",
        "_heard",
        "_holds",
        "_reading",
        "closing",
        "keep_alive",
        "peer",
    )

    def __init__(self, frontend: Frontend, port: Port, peer: str = "?") -> None:
        super().__init__(frontend, port)
        self.peer = peer
        """The client's address, for log lines."""
        self.keep_alive = 0.0
        """Seconds without a packet after which the client counts as lost; 0: never."""
        self.closing = False
        """Nothing more is read; close the transport when `out` is written."""
        self._framer = Framer()
        self._heard = frontend.clock()
        self._aliases_in: dict[int, bytes] | None = None
        self._awaiting = 0
        """Publications of QoS 1 and 2 the mesh has not confirmed yet."""
        self._holds = 0
        """Slow subscribers this publisher waits for."""
        self._reading = True
        frontend.connections.add(self)
        frontend.timers.at(self._heard + frontend.limits.connect_timeout, self._check_connected)

    # ---- input

    def receive(self, data: bytes) -> None:
        """Handle what the client sent. Never raises because of the bytes: a fault closes the connection."""
        frontend = self.frontend
        self._heard = frontend.clock()
        data = self._framer.feed(data)
        pos, size = 0, len(data)
        limit = frontend.limits.maximum_packet_size
        try:
            while pos < size and not self.closing:
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
            self._framer.keep(data, pos)
            if frontend.blocked or frontend.publishers_paused or not self.writable:
                self._yield()
        frontend.blocked.clear()

    def _shortcut(self, first: int, data: bytes, pos: int, size: int) -> int:
        """Handle a run of equal packets at once. Returns where it ends, or 0 if that cannot be done here."""
        if first == 0x30:
            return self._relay_run(data, pos, size) or self._publish_run(data, pos, size)
        if first == 0x32:
            return self._publish_run(data, pos, size)
        return self._acknowledgements(data, pos, size)

    def _relay_run(self, data: bytes, pos: int, size: int) -> int:
        """Relay a run of QoS 0 publications with the same topic and size, if every subscriber takes them verbatim.

        Returns where the run ends, or 0 if this is not such a run. The hot path: one slice and one list operation per
        subscriber and run, however many packets it has.
        """
        topic, end = self._plain_publish(data, pos, size)
        session = self.session
        if session is None or not end:
            return 0
        hub = session.hub
        route = hub.routes.get(data[topic + 2 : (topic_end := topic + 2 + (data[topic] << 8 | data[topic + 1]))])
        if route is None or self.version not in route.wires:
            return 0
        if self.version == V5:
            if topic_end >= end or data[topic_end]:  # it has properties
                return 0
            topic_end += 1
        elif topic_end > end:
            return 0
        run_end, step, count = end, end - pos, 1
        same = data[pos:topic_end]
        while run_end + step <= size and data.startswith(same, run_end):
            run_end += step
            count += 1
        session.publisher.published += count
        hub.published += count
        hub.delivered += count * len(route.relays)
        packets = data[pos:run_end]
        for agent in route.relays:
            agent.relay(packets, count)
        if route.mesh.remote:
            for start in range(pos, run_end, step):
                payload = data[start + topic_end - pos : start + step]
                hub.mesh.publish(Message(route.topic, payload), None)
        else:
            route.mesh.used = True
        return run_end

    def _publish_run(self, data: bytes, pos: int, size: int) -> int:
        """Publish a run of plain publications with the same topic and size, QoS 0 or 1, as one burst.

        Returns where the run ends, or 0 if there is no run here or the mesh has to be asked.
        """
        topic, end = self._plain_publish(data, pos, size)
        session = self.session
        if session is None or not end:
            return 0
        hub, step, qos = session.hub, end - pos, data[pos] >> 1
        topic_end = topic + 2 + (data[topic] << 8 | data[topic + 1])
        route = hub.routes.get(data[topic + 2 : topic_end])
        payload = topic_end - pos + (2 if qos & 1 else 0) + (self.version == V5)  # its offset in each packet
        same = data[pos:topic_end]
        if route is None or route.mesh.remote or payload > step or not data.startswith(same, end):
            return 0
        publications, answers = [], []
        while pos + step <= size and data.startswith(same, pos):
            if self.version == V5 and data[pos + payload - 1]:  # it has properties
                break
            if qos & 1:
                packet_id = data[topic_end : topic_end + 2]
                if packet_id == b"\0\0":
                    break
                answers.append(packet_id)
            publications.append(Publication(Message(route.topic, data[pos + payload : pos + step], qos & 1)))
            pos += step
            topic_end += step
        if not publications:
            return 0
        session.publisher.published += len(publications)
        route.mesh.used = True
        matched = hub.spread_burst(route, Burst(publications), session)
        if answers and (matched or self.version != V5):
            self.write(b"\x40\x02" + b"\x40\x02".join(answers))
        elif answers:
            self.write(b"".join([b"\x40\x03" + packet_id + b"\x10" for packet_id in answers]))
        return pos

    def _plain_publish(self, data: bytes, pos: int, size: int) -> tuple[int, int]:
        """Where the topic field of the PUBLISH at `pos` begins and where the packet ends.

        The end is 0 unless the packet is complete, not too large, and its remaining length has at most two bytes.
        """
        if pos + 5 > size:
            return 0, 0
        length, body = data[pos + 1], pos + 2
        if length > 0x7F:
            high = data[body]
            if not 0 < high < 0x80:
                return 0, 0
            length += (high << 7) - 0x80
            body += 1
        end = body + length
        if length < 2 or end > size or end - pos > self.frontend.limits.maximum_packet_size:
            return 0, 0
        return body, end

    def _acknowledgements(self, data: bytes, pos: int, size: int) -> int:
        """A run of PUBACKs without reason codes. Returns where it ends."""
        session = self.session
        if session is None:
            return 0
        inflight = session.inflight
        end = pos
        for head, packet_id in iter_unpack(">HH", memoryview(data)[pos : size - (size - pos) % 4]):
            if head != 0x4002:
                break
            if inflight.get(packet_id) is not None:
                del inflight[packet_id]
            end += 4
        if session.queue:
            session.pump()
        return end if end > pos else 0

    def _handle(self, first: int, data: bytes, body: int, end: int) -> None:
        """One complete packet."""
        kind = first >> 4
        if self.session is None:
            if kind != PacketType.CONNECT:
                raise ProtocolError("the first packet is not CONNECT")
            self._connect(first, data, body, end)
        elif kind == PacketType.PUBLISH:
            self._publish(first, data, body, end)
        else:
            packet = decode(first, data, body, end, self.version)
            handler = _HANDLERS.get(kind)
            if handler is None:
                raise ProtocolError(f"{PacketType(kind).name} is not for a client to send now")
            handler(self, packet)

    def _connect(self, first: int, data: bytes, body: int, end: int) -> None:
        packet = decode(first, data, body, end, V5)
        assert isinstance(packet, Connect)
        self.version = packet.version
        accept(self, packet)
        if self.keep_alive:
            self.frontend.timers.at(self._heard + self.keep_alive, self._check_keep_alive)

    # ---- publications from the client

    def _publish(self, first: int, data: bytes, pos: int, end: int) -> None:
        qos = check_publish_flags(first)
        topic_end = pos + 2 + (data[pos] << 8 | data[pos + 1]) if end - pos >= 2 else end + 1
        if topic_end > end:
            raise MalformedPacket("PUBLISH ends within the topic")
        topic = data[pos + 2 : topic_end]
        pos = topic_end
        packet_id = 0
        if qos:
            packet_id = data[pos] << 8 | data[pos + 1] if end - pos >= 2 else 0
            if not packet_id:
                raise MalformedPacket("PUBLISH without a packet identifier")
            pos += 2
        properties = None
        if self.version == V5:
            if pos < end and not data[pos]:
                pos += 1
            else:
                reader = Reader(data, pos, end)
                found = decode_properties(reader, PacketType.PUBLISH)
                pos = reader.pos
                topic = self._publish_properties(topic, found)
                properties = received_properties(found)
        route = self.frontend.hub.routes.get(topic) or self._new_route(topic)
        message = Message(route.topic, data[pos:end], qos, bool(first & 1), properties)
        if not qos:
            self._publish_qos_0(route, message)
        else:
            self._publish_with_id(route, message, packet_id)

    def _publish_properties(self, topic: bytes, found: PropertyMap) -> bytes:
        """Check the properties of a PUBLISH; returns its topic, from the alias if it is left out (3.3.2.3.4)."""
        if Property.SUBSCRIPTION_IDENTIFIER in found:
            raise ProtocolError("PUBLISH from a client with a subscription identifier")
        alias = found.get(Property.TOPIC_ALIAS)
        if alias is None:
            return topic
        if alias > self.frontend.limits.topic_alias_maximum:
            raise ProtocolError(f"topic alias {alias}", Reason.TOPIC_ALIAS_INVALID)
        aliases = self._aliases_in
        if aliases is None:
            aliases = self._aliases_in = {}
        if topic:
            aliases[alias] = topic
            return topic
        known = aliases.get(alias)
        if known is None:
            raise ProtocolError(f"topic alias {alias} is not set")
        return known

    def _new_route(self, topic: bytes) -> Route:
        """The route of a topic that is not at hand; the topic is checked here, once."""
        if not topic and self.version == V5:
            raise ProtocolError("PUBLISH without a topic and without a topic alias")
        fault = topic_fault(decode_string(topic))
        if fault is not None:
            raise ProtocolError(fault, Reason.TOPIC_NAME_INVALID)
        return self.frontend.hub.route(topic)

    def _publish_qos_0(self, route: Route, message: Message) -> None:
        session = self._session
        if not is_reserved(message.topic):
            session.publisher.published += 1
            session.hub.spread(route, session.hub.publication(message), session)
            session.hub.forward(route, message, None)

    def _publish_with_id(self, route: Route, message: Message, packet_id: int) -> None:
        session = self._session
        qos = message.qos
        if qos == 2:
            if session.incoming is None:
                session.incoming = {}
            confirmed = session.incoming.get(packet_id)
            if confirmed is not None:  # a retransmission
                if confirmed:
                    self._acknowledge(packet_id, 2, 1)
                return
        incoming = len(session.incoming) if session.incoming else 0
        if self.version == V5 and self._awaiting + incoming >= self.frontend.limits.receive_maximum:
            raise ProtocolError("more publications than the receive maximum", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if is_reserved(message.topic):
            self._answer(packet_id, qos, Reason.NOT_AUTHORIZED)
            return
        if qos == 2:
            assert session.incoming is not None
            session.incoming[packet_id] = False
        session.publisher.published += 1
        hub = session.hub
        matched = hub.spread(route, hub.publication(message), session)
        if route.mesh.remote:
            self._awaiting += qos == 1
            hub.mesh.publish(message, partial(self._confirmed, session, packet_id, qos, matched))
            if self._awaiting > self.frontend.limits.receive_maximum:
                self.update_reading()
        else:
            route.mesh.used = True
            self._acknowledge(packet_id, qos, matched)

    def _confirmed(self, session: Session, packet_id: int, qos: int, matched: int, reached: Reached) -> None:
        """The mesh has the publication: acknowledge it, with QoS 2 on the session's present connection."""
        if qos == 1:
            self._awaiting -= 1
            if not self.closing:
                self._acknowledge(packet_id, 1, matched + reached.subscribers)
                self.update_reading()
            return
        incoming = session.incoming
        if incoming is not None and packet_id in incoming:
            incoming[packet_id] = True
            present = session.connection
            if present is not None:
                present._acknowledge(packet_id, 2, matched + reached.subscribers)

    def _acknowledge(self, packet_id: int, qos: int, matched: int) -> None:
        """PUBACK or PUBREC; MQTT 5 is told when nobody has subscribed."""
        if qos == 2:
            incoming = self._session.incoming
            if incoming is not None:
                incoming[packet_id] = True
        if matched or self.version != V5:
            self.write((b"\x40\x02" if qos == 1 else b"\x50\x02") + packet_id.to_bytes(2))
        else:
            self._answer(packet_id, qos, Reason.NO_MATCHING_SUBSCRIBERS)

    def _answer(self, packet_id: int, qos: int, reason: Reason) -> None:
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        self.write(encode(Ack(kind, packet_id, reason), self.version))

    # ---- other packets from the client

    def _pubrel(self, packet: Ack) -> None:
        incoming = self._session.incoming
        known = incoming is not None and incoming.pop(packet.packet_id, None) is not None
        reason = Reason.SUCCESS if known else Reason.PACKET_IDENTIFIER_NOT_FOUND
        self.write(encode(Ack(PacketType.PUBCOMP, packet.packet_id, reason), self.version))

    def _puback(self, packet: Ack) -> None:
        self._session.acknowledged(packet.packet_id)

    def _pubrec(self, packet: Ack) -> None:
        if packet.reason >= 0x80:
            self._session.acknowledged(packet.packet_id)
        elif self._session.received(packet.packet_id) or self.version != V5:
            self.send_release(packet.packet_id)
        else:
            self.write(encode(Ack(PacketType.PUBREL, packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND), V5))

    def _pubcomp(self, packet: Ack) -> None:
        self._session.completed(packet.packet_id)

    def _subscribe(self, packet: Subscribe) -> None:
        Grants(self, self._session, packet).start()

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        session = self._session
        reasons = [
            int(Reason.SUCCESS if session.unsubscribe(f) else Reason.NO_SUBSCRIPTION_EXISTED) for f in packet.filters
        ]
        self.write(encode(Unsuback(packet.packet_id, reasons), self.version))

    def _pingreq(self, packet: object) -> None:
        self.write(b"\xd0\0")

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
            self.write(encode(Disconnect(reason), V5))
        if text:
            logger.warning("MQTT client %s closed: %s (0x%02x %s)", self._label, text, reason, reason.name)
        self._end(with_will=reason is not Reason.SERVER_SHUTTING_DOWN)

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
        if session is not None and session.connection is self:
            self.frontend.detach(session, with_will)

    @property
    def _session(self) -> Session:
        session = self.session
        assert session is not None
        return session

    @property
    def _label(self) -> str:
        return f"{self.session.client_id!r} at {self.peer}" if self.session is not None else self.peer

    # ---- time

    def _check_connected(self, now: float) -> None:
        if self.session is None and not self.closing:
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

    def _yield(self) -> None:
        """After input that met a slow subscriber, a congested mesh, or a client that does not read its answers."""
        for blocked in self.frontend.blocked:
            self._holds += self.wait_for(blocked)
        self.update_reading()

    def released(self) -> None:
        self._holds -= 1
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
            and self.writable
            and self._awaiting <= self.frontend.limits.receive_maximum
            and not (self.frontend.publishers_paused and self.session.publisher.published)
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
