"""Publications from a client: PUBLISH of every quality, one by one and in runs (MQTT 5.0, sections 3.3 and 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import compress, groupby
from operator import itemgetter

from saps.frontend.mqtt.decode import check_publish_flags
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.outgoing import Relayed, received_properties
from saps.frontend.mqtt.packets import V5, Ack, PacketType
from saps.frontend.mqtt.properties import Property, PropertyMap, decode_properties
from saps.frontend.mqtt.reasons import MalformedPacket, ProtocolError, Reason
from saps.frontend.mqtt.sender import Port, Sender
from saps.frontend.mqtt.session import HALF_DONE, Session
from saps.frontend.mqtt.wire import Reader, decode_string
from saps.hub import Burst, Publication, Route, is_reserved
from saps.mesh import RunDone
from saps.messages import Message, MessageRun, Properties, Reached
from saps.plain import (
    MOST_TOGETHER,
    Encoded,
    First,
    first_packet,
    lone_publication,
    packet_end,
    plain_behind,
    plain_payloads,
    plain_run,
    plain_stretch,
)
from saps.priority import Priorities
from saps.topics import topic_fault

REACHED = "saps-reached"
"""The user property by which a publication asks how many subscribers it reaches, and its PUBACK or PUBREC says it."""
REACHED_BROKERS = "saps-reached-brokers"
"""The user property by which a `Publisher.tell_reached` says, beside it, how many other brokers have it."""

FEW_ALONE = {0x30: 3, 0x32: 8}
"""By their first byte: how many plain publications of about one size are published sooner each by itself than as a run
or a stretch."""

FEW = 3
"""Publications in a run up to which it is worth to look if those behind it are to other topics."""

MANY = 8
"""Publications in a run from which on it crosses to other brokers as the packets it came as. Fewer are opened: they may
join what others publish to the topic in the same turn."""

_NOTHING: dict[bytes, tuple[int, Route]] = {}


class Publisher(Sender):
    """The part of a connection that takes publications from the client and answers them."""

    __slots__ = ("_ahead", "_aliases_in", "_awaiting", "_known", "_ordinary", "_size", "tell_problems", "tell_reached")

    def __init__(self, frontend: Frontend, port: Port) -> None:
        super().__init__(frontend, port)
        self._aliases_in: dict[int, bytes] | None = None
        self._awaiting = 0
        """Publications of QoS 1 the mesh has not confirmed yet."""
        self._ordinary = False
        """It has published something without priority, where priorities are known."""
        self._known = _NOTHING
        """What is known of lone publications (`Hub.lone`), once there was one."""
        self._ahead = 0
        """Bytes of the last one by which the next may be known."""
        self._size = 0
        """All bytes of the last one."""
        self.tell_problems = True
        """Answers may carry user properties (Request Problem Information, 3.1.2.11.7)."""
        self.tell_reached = False
        """Every publication with QoS 1 or 2 that does not take a shortcut is answered as if it asked for `REACHED`."""

    # ---- plain publications: the hot paths

    def _publish_alone(self, data: bytes) -> bool:
        """Publish the plain publication that `data` consists of: written through to its subscribers, then answered.

        What is done for a message that comes after a pause, with cold caches, is felt as latency, so this does little.
        False if the publication must go the long way.
        """
        session = self.session
        if session is None:
            return False
        size = len(data)
        known = self._known.get(data[: self._ahead]) if size == self._size else None  # else it would be in vain
        route = known[1] if known is not None and known[0] == size else self._look_at(data)
        if route is None or route.mesh.remote or self.version not in route.wires:
            return False
        numbered, end = data[0] == 0x32, self._ahead
        if numbered and (not route.numbered or self._awaiting or session.incoming or self.out):
            return False
        if numbered and not plain_behind(data, end, self.version):
            return False
        if route.count is not None and route.count.last is not session:
            route.count.by(session)
        if numbered:
            packet = Relayed(route.topic, data[:end], data[end + 2 :], self.version == V5)
            session.hub.relay_numbered(route, packet, len(data) - end - 2)
            self.port.write(b"\x40\x02" + data[end : end + 2])
            self.frontend.counts.answered += 1
        else:
            session.hub.relay(route, data, 1, at_once=True)
        session.publisher.published += 1
        route.mesh.used = True
        return True

    def _look_at(self, data: bytes) -> Route | None:
        """The kept route of the plain publication that `data` consists of, if it is one and has one.

        If it is as long as the one before, what of it is the same in all of its size to this topic is remembered: up to
        the payload, or to the packet identifier.
        """
        end = lone_publication(data, self.version)
        if not end or len(data) > self.frontend.limits.maximum_packet_size:
            return None
        hub = self.frontend.hub
        route = hub.routes.get(data[(data[1] >> 7) + 4 : end])
        if route is not None:
            self._ahead = end + (data[0] == 0x30 and self.version == V5)
            if len(data) == self._size:
                self._known = hub.lone[self.version]
                hub.remember(self.version, data[: self._ahead], len(data), route)
            self._size = len(data)
        return route

    def _publish_few(self, data: bytes) -> int:
        """Publish the plain publications that `data` begins with each by itself, if they are few (`FEW_ALONE`).

        Returns where the one begins that must go another way, which may be the first.
        """
        first, blocked = data[0], self.frontend.blocked
        pos, end = 0, packet_end(data, 0)
        if len(data) > FEW_ALONE[first] * end:
            return 0
        while pos < end and data[pos] == first and not blocked and self._publish_alone(data[pos:end]):
            pos, end = end, packet_end(data, end)
        return pos

    def _publish_run(self, data: bytes, pos: int) -> int:
        """Publish the run of plain publications to one topic that begins at `pos`, QoS 0 or 1.

        Returns where it ends, or 0 if the packet is not plain or its topic not known.
        """
        session = self.session
        first = first_packet(data, pos)
        if session is None or first is None:
            return 0
        hub = session.hub
        route = hub.routes.get(data[first.topic + 2 : first.end])
        if route is None:
            return 0
        ends = plain_run(data, pos, first, self.version, self.frontend.limits.maximum_packet_size)
        if not ends:
            return 0
        run_end = ends[-1]
        if len(ends) <= FEW and run_end < len(data) and (stretch_end := self._publish_stretch(data, pos)):
            return stretch_end
        if data[pos] == 0x32:
            return self._publish_numbered_run(route, data, pos, first, ends)
        session.publisher.published += len(ends)
        if hub.priorities is not None and route.mesh.remote:
            self._note_priority(hub.priorities, route.topic)
        verbatim = self.version in route.wires
        if verbatim:  # one list operation for each subscriber, however many packets it is
            if route.count is not None and route.count.last is not session:
                route.count.by(session)
            hub.relay(route, data[pos:run_end], len(ends), at_once=False)
            if not route.mesh.remote:
                route.mesh.used = True
                return run_end
            if len(ends) >= MANY:
                self._forward_encoded(route, data, pos, ends)
                return run_end
        ahead = first.end - first.topic + (self.version == V5)
        run = MessageRun(route.topic, 0, plain_payloads(data, pos, ahead, ends))
        if not verbatim:
            hub.spread_burst(route, Burst([run]), session)
        hub.forward_run(route, run)
        return run_end

    def _forward_encoded(self, route: Route, data: bytes, pos: int, ends: list[int]) -> None:
        """Hand a run of QoS 0 to the mesh as the packets it came as."""
        hub = self._session.hub
        for begin in range(0, len(ends), MOST_TOGETHER):
            part = ends[begin : begin + MOST_TOGETHER]
            shifted = [end - pos for end in part] if pos else part
            hub.forward_stretch(Encoded(self.version, data[pos : part[-1]], [route.topic], shifted))
            pos = part[-1]

    def _publish_numbered_run(self, route: Route, data: bytes, pos: int, first: First, ends: list[int]) -> int:
        """A run of QoS 1, as bursts of which a queue that is not half full takes one more, and no further than to one
        that made a subscriber's queue so. Returns where it ends."""
        ahead = first.end - first.topic
        payload_ahead = ahead + 2 + (self.version == V5)
        payloads, packet_ids = [], []
        for end in ends:
            body = pos + 2 if data[pos + 1] < 0x80 else pos + 3
            packet_ids.append(data[body + ahead : body + ahead + 2])
            payloads.append(data[body + payload_ahead : end])
            pos = end
        frontend, most = self.frontend, self._portion
        for begin in range(0, len(ends), most):
            if begin and frontend.blocked and self.wait_for_slow():
                return ends[begin - 1]
            self._publish_numbered(route, payloads[begin : begin + most], packet_ids[begin : begin + most])
        return ends[-1]

    def wait_for_slow(self) -> bool:
        """Wait for the slow subscribers that this input has met so far. True if there are any that are waited for."""
        raise NotImplementedError

    @property
    def _portion(self) -> int:
        """Publications of QoS 1 that a subscriber's queue takes at once while it is not more than half full."""
        return max(1, self.frontend.limits.maximum_queued // 2)

    def _publish_numbered(self, route: Route, payloads: list[bytes], packet_ids: list[bytes]) -> None:
        """Publications of QoS 1 to one topic as a burst, with all its answers at once."""
        run, count = MessageRun(route.topic, 1, payloads), len(payloads)
        if count == 1 or self.frontend.refusal is not None or (route.mesh.remote and not self._awaits(count)):
            for message, packet_id in zip(run.messages, packet_ids, strict=True):
                self._publish_with_id(route, Publication(message), int.from_bytes(packet_id))
            return
        session = self._session
        session.publisher.published += count
        hub, priorities = session.hub, session.hub.priorities
        matched = hub.spread_burst(route, Burst([run]), session)
        if not route.mesh.remote:
            route.mesh.used = True
            self._acknowledge_run(packet_ids, matched)
            return
        if priorities is not None:
            self._note_priority(priorities, run.topic)
        self._hand_over(partial(hub.mesh.publish_run, run), packet_ids, [matched] * count)

    def _hand_over(self, publish: Callable[[RunDone], None], packet_ids: list[bytes], matched: list[int]) -> None:
        """Have the mesh take publications, of which each has so many subscribers here, and acknowledge them then."""
        self._awaiting += len(packet_ids)
        publish(partial(self._confirmed_together, packet_ids, matched))
        if self._awaiting > self.frontend.limits.receive_maximum:
            self.update_reading()

    def _publish_stretch(self, data: bytes, pos: int) -> int:
        """Publish the plain publications from `pos` on, to several topics, QoS 0 or 1, with few steps for each.

        Returns where they end, or 0 if there is no more than one of a topic at hand, or each must be looked at.
        """
        session, frontend, version = self._session, self.frontend, self.version
        qos = int(data[pos] == 0x32)
        if qos and (frontend.refusal is not None or self.tell_reached):
            return 0
        hub, limit = session.hub, frontend.limits.maximum_packet_size
        routes, starts, ends = plain_stretch(data, pos, version, limit, self._look_up)
        if qos and len(routes) > (most := self._portion):
            del routes[most:], starts[most:], ends[most:]
        distinct = set(routes)
        remote = any(route.mesh.remote for route in distinct)
        if len(routes) < 2 or (qos and remote and not self._awaits(len(routes))):
            return 0
        session.publisher.published += len(routes)
        for route in distinct:
            if not route.mesh.remote:
                route.mesh.used = True
            elif hub.priorities is not None:
                self._note_priority(hub.priorities, route.topic)
        verbatim = not qos and all(version in route.wires for route in distinct)
        if verbatim:
            hub.relay_several(routes, data, pos, starts, ends, session)
            if not remote:
                return ends[-1]
            if all(route.mesh.remote for route in distinct):
                self._forward_several(routes, data, pos, ends)
                return ends[-1]
        runs = [
            MessageRun(route.topic, qos, [data[start:end]])
            for route, start, end in zip(routes, starts, ends, strict=True)
        ]
        matched = [] if verbatim else hub.spread_several(routes, runs, session)
        if qos:
            behind = 2 + (version == V5)
            packet_ids = [data[start - behind : start - behind + 2] for start in starts]
            self._answer_stretch(routes, runs, packet_ids, matched)
        elif remote:
            for route, run in zip(routes, runs, strict=True):
                hub.forward_run(route, run)
        return ends[-1]

    def _forward_several(self, routes: list[Route], data: bytes, pos: int, ends: list[int]) -> None:
        """Hand a stretch of QoS 0 to the mesh as the packets it came as."""
        numbers: dict[Route, int] = {}
        which = [numbers.setdefault(route, len(numbers)) for route in routes]
        if pos:
            ends = [end - pos for end in ends]
        packets = data[pos : pos + ends[-1]]
        topics = [route.topic for route in numbers]
        self._session.hub.forward_stretch(Encoded(self.version, packets, topics, ends, which))

    def _look_up(self, topic: bytes) -> Route | None:
        """The route of a topic that the client is known to be allowed to publish to, if it is at hand."""
        return self._session.hub.routes.get(topic)

    def _answer_stretch(
        self, routes: list[Route], runs: list[MessageRun], packet_ids: list[bytes], matched: list[int]
    ) -> None:
        """Answer a stretch of QoS 1 of which each has so many subscribers here: at once, or when the mesh has it."""
        remote, publish = [route.mesh.remote for route in routes], self._session.hub.mesh.publish_several
        if all(remote):
            self._hand_over(partial(publish, runs), packet_ids, matched)
            return
        if any(remote):
            there = partial(publish, list(compress(runs, remote)))
            self._hand_over(there, list(compress(packet_ids, remote)), list(compress(matched, remote)))
        here = [not elsewhere for elsewhere in remote]
        self._acknowledge_several(list(compress(packet_ids, here)), list(compress(matched, here)))

    def _awaits(self, count: int) -> bool:
        """May so many publications wait together for the mesh to confirm them? Else each must be looked at."""
        incoming = self._session.incoming
        waiting = self._awaiting + count + (len(incoming) if incoming else 0)
        return not self.tell_reached and (self.version != V5 or waiting <= self.frontend.limits.receive_maximum)

    def _confirmed_together(
        self, packet_ids: list[bytes], matched: list[int], start: int, count: int, reached: Reached
    ) -> None:
        """The mesh has some of the publications handed over, of which each has so many subscribers here."""
        self._awaiting -= count
        if self.closing:
            return
        if reached.subscribers:
            self._acknowledge_run(packet_ids[start : start + count], reached.subscribers)
        else:
            self._acknowledge_several(packet_ids[start : start + count], matched[start : start + count])
        self.update_reading()

    def _acknowledge_several(self, packet_ids: list[bytes], matched: list[int]) -> None:
        """PUBACK for publications, each of which has reached so many subscribers."""
        if all(matched):
            self._acknowledge_run(packet_ids, 1)
            return
        for reached, alike in groupby(zip(map(bool, matched), packet_ids, strict=True), key=itemgetter(0)):
            self._acknowledge_run([packet_id for _, packet_id in alike], reached)

    def _acknowledge_run(self, packet_ids: list[bytes], matched: int) -> None:
        """PUBACK for publications of which each has reached so many subscribers."""
        self.frontend.counts.answered += len(packet_ids)
        if matched or self.version != V5:
            self.write(b"\x40\x02" + b"\x40\x02".join(packet_ids))
        else:
            self.write(b"".join([b"\x40\x03" + packet_id + b"\x10" for packet_id in packet_ids]))

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
            self._publish_with_id(route, self.frontend.hub.publication(message), packet_id)

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
        name = decode_string(topic)
        fault = topic_fault(name)
        if fault is not None:
            raise ProtocolError(fault, Reason.TOPIC_NAME_INVALID)
        if name.count("/") >= self.frontend.limits.maximum_topic_levels:
            raise ProtocolError("a topic of too many levels", Reason.TOPIC_NAME_INVALID)
        return self._find_route(topic, name)

    def _find_route(self, topic: bytes, name: str) -> Route:
        return self.frontend.hub.route(topic)

    def _publish_qos_0(self, route: Route, message: Message) -> None:
        session = self._session
        if not is_reserved(message.topic):
            session.publisher.published += 1
            publication = session.hub.publication(message)
            session.hub.spread(route, publication, session)
            session.hub.forward(route, publication.message, None)
            if session.hub.priorities is not None:
                self._note_priority(session.hub.priorities, message.topic)

    def _note_priority(self, priorities: Priorities, topic: str) -> None:
        if not self._ordinary and not priorities.urgent(topic):
            self._ordinary = True

    @property
    def held_back(self) -> bool:
        """It is not to be read while links are congested: it publishes, and not to priority topics alone."""
        session = self._session
        return bool(session.publisher.published) and (self._ordinary or session.hub.priorities is None)

    def _publish_with_id(self, route: Route, publication: Publication, packet_id: int) -> None:
        session, message = self._session, publication.message
        qos = message.qos
        if qos == 2:
            if session.incoming is None:
                session.incoming = {}
            known = session.incoming.get(packet_id)
            if known is not None:  # a retransmission
                if known >= 0:
                    self._acknowledge(packet_id, 2, known, self._asks(message.properties))
                elif known == HALF_DONE:
                    session.incoming[packet_id] = -1
                    self._publish_to_mesh(session, message, packet_id, session.hub.matching(message.topic))
                return
        incoming = len(session.incoming) if session.incoming else 0
        if self.version == V5 and self._awaiting + incoming >= self.frontend.limits.receive_maximum:
            raise ProtocolError("more publications than the receive maximum", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if is_reserved(message.topic):
            self._answer(packet_id, qos, Reason.NOT_AUTHORIZED)
            return
        if (refusal := self.frontend.refusal) is not None:
            if self.version != V5:
                raise ProtocolError("its publication cannot be stored", refusal)
            self._answer(packet_id, qos, refusal)
            return
        if qos == 2:
            assert session.incoming is not None
            session.incoming[packet_id] = -1
        session.publisher.published += 1
        hub = session.hub
        matched = hub.spread(route, publication, session)
        if route.mesh.remote or message.retain:
            self._publish_to_mesh(session, message, packet_id, matched)
        else:
            route.mesh.used = True
            self._acknowledge(packet_id, qos, matched, self._asks(message.properties))

    def _publish_to_mesh(self, session: Session, message: Message, packet_id: int, matched: int) -> None:
        """Have the mesh take the publication, which `matched` subscribers here have got, and acknowledge it then."""
        hub, qos, asked = session.hub, message.qos, self._asks(message.properties)
        self._awaiting += qos == 1
        if hub.priorities is not None:
            self._note_priority(hub.priorities, message.topic)
        hub.mesh.publish(message, partial(self._confirmed, session, packet_id, qos, matched, asked))
        if self._awaiting > self.frontend.limits.receive_maximum:
            self.update_reading()

    def _confirmed(
        self, session: Session, packet_id: int, qos: int, matched: int, asked: bool, reached: Reached
    ) -> None:
        """The mesh has the publication: acknowledge it, with QoS 2 on the session's present connection."""
        if qos == 1:
            self._awaiting -= 1
            if not self.closing:
                self._acknowledge(packet_id, 1, matched + reached.subscribers, asked, reached.brokers)
                self.update_reading()
            return
        incoming = session.incoming
        if incoming is not None and packet_id in incoming:
            incoming[packet_id] = matched + reached.subscribers
            present = session.connection
            if present is not None:
                present._acknowledge(packet_id, 2, matched + reached.subscribers, asked, reached.brokers)

    def _acknowledge(self, packet_id: int, qos: int, matched: int, asked: bool = False, brokers: int = 0) -> None:
        """PUBACK or PUBREC; MQTT 5 is told when nobody has subscribed, and if `asked` how many were reached."""
        if qos == 2:
            incoming = self._session.incoming
            if incoming is not None:
                incoming[packet_id] = matched
        if self.version != V5 or (matched and not asked):
            self.frontend.counts.answered += 1
            self.write((b"\x40\x02" if qos == 1 else b"\x50\x02") + packet_id.to_bytes(2))
        else:
            reason = Reason.SUCCESS if matched else Reason.NO_MATCHING_SUBSCRIBERS
            told = ((REACHED, str(matched)), (REACHED_BROKERS, str(brokers)))[: 1 + self.tell_reached]
            self._answer(packet_id, qos, reason, told if asked else ())

    def _answer(self, packet_id: int, qos: int, reason: Reason, told: tuple[tuple[str, str], ...] = ()) -> None:
        """Answer with `reason` and, where the client allows it (3.1.2.11.7, 3.4.2.2.3), these user properties."""
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        full = Ack(kind, packet_id, reason, {Property.USER_PROPERTY: told} if told and self.tell_problems else {})
        if not self.answer(full):
            self.answer(Ack(kind, packet_id, reason))

    def _asks(self, properties: Properties | None) -> bool:
        """Does the publisher want to know how many subscribers it reaches?"""
        return self.tell_reached or (properties is not None and any(name == REACHED for name, _ in properties.user))

    @property
    def _session(self) -> Session:
        session = self.session
        assert session is not None
        return session
