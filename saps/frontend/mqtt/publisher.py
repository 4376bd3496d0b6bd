"""Publications from a client: PUBLISH of every quality, one by one and in runs (MQTT 5.0, sections 3.3 and 4.3)."""

from __future__ import annotations

from functools import partial

from saps.frontend.mqtt.decode import check_publish_flags
from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.outgoing import received_properties
from saps.frontend.mqtt.packets import V5, Ack, PacketType
from saps.frontend.mqtt.properties import Property, PropertyMap, decode_properties
from saps.frontend.mqtt.reasons import MalformedPacket, ProtocolError, Reason
from saps.frontend.mqtt.sender import Port, Sender
from saps.frontend.mqtt.session import Session
from saps.frontend.mqtt.wire import Reader, decode_string
from saps.hub import Burst, Publication, Route, is_reserved
from saps.messages import Message, Reached
from saps.topics import topic_fault


class Publisher(Sender):
    """The part of a connection that takes publications from the client and answers them."""

    __slots__ = ("_aliases_in", "_awaiting")

    def __init__(self, frontend: Frontend, port: Port) -> None:
        super().__init__(frontend, port)
        self._aliases_in: dict[int, bytes] | None = None
        self._awaiting = 0
        """Publications of QoS 1 the mesh has not confirmed yet."""

    # ---- runs of plain publications: the hot path

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
        """Publish plain publications with the same topic and size, QoS 0 or 1: a run of them as one burst.

        Returns where they end, or 0 if the packet is not plain or its topic not known.
        """
        topic, end = self._plain_publish(data, pos, size)
        session = self.session
        if session is None or not end:
            return 0
        step, qos = end - pos, data[pos] >> 1 & 1
        topic_end = topic + 2 + (data[topic] << 8 | data[topic + 1])
        route = session.hub.routes.get(data[topic + 2 : topic_end])
        payload = topic_end - pos + 2 * qos + (self.version == V5)  # its offset in each packet
        if route is None or payload > step:
            return 0
        same = data[pos:topic_end]
        publications: list[Publication] = []
        answers: list[bytes] = []
        while pos + step <= size and data.startswith(same, pos):
            if self.version == V5 and data[pos + payload - 1]:  # it has properties
                break
            if qos:
                packet_id = data[topic_end : topic_end + 2]
                if packet_id == b"\0\0":
                    break
                answers.append(packet_id)
            message = Message(route.topic, data[pos + payload : pos + step], qos)
            pos += step
            topic_end += step
            if route.mesh.remote or not (publications or data.startswith(same, pos)):  # one by one
                self._publish_plain(route, message, answers)
                return pos
            publications.append(Publication(message))
        if publications:
            self._publish_burst(route, Burst(publications), answers)
            return pos
        return 0

    def _publish_plain(self, route: Route, message: Message, packet_ids: list[bytes]) -> None:
        if packet_ids:
            self._publish_with_id(route, message, int.from_bytes(packet_ids[0]))
        else:
            self._publish_qos_0(route, message)

    def _publish_burst(self, route: Route, burst: Burst, packet_ids: list[bytes]) -> None:
        """Nobody in the mesh wants it: deliver it here, and acknowledge those with packet identifiers."""
        session = self._session
        session.publisher.published += len(burst.publications)
        route.mesh.used = True
        matched = session.hub.spread_burst(route, burst, session)
        if packet_ids and (matched or self.version != V5):
            self.write(b"\x40\x02" + b"\x40\x02".join(packet_ids))
        elif packet_ids:
            self.write(b"".join([b"\x40\x03" + packet_id + b"\x10" for packet_id in packet_ids]))

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

    # ---- any publication

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

    @property
    def _session(self) -> Session:
        session = self.session
        assert session is not None
        return session
