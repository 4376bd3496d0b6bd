"""Publications from a client: PUBLISH of every quality, and their acknowledgements (MQTT 5.0, sections 3.3, 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from saps.agents.user import Asker
from saps.frontend.mqtt.codec.packets import V5, Ack, PacketType
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.publish_cut import Cut, Cutter
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.frontend.mqtt.connection.asking import Asking
from saps.frontend.mqtt.session.session import HALF_DONE, Session
from saps.local.batch import MOST, Batch
from saps.local.hub import NOT_PUBLISHED
from saps.messages import REFUSED, Properties, Reached

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection

TELL = "saps-reached"
"""The user property by which a publication asks how many subscribers it reaches, and its PUBACK or PUBREC says it."""
TELL_BROKERS = "saps-reached-brokers"
"""The user property that says, beside it, how many other brokers have it (`PublishHandler.tell_reached`)."""
_HEADS = {1: 0x40, 2: 0x50}
"""First bytes of PUBACK and PUBREC, by QoS."""


class PublishHandler:
    """Takes the publications of one client and acknowledges them."""

    __slots__ = (
        "_asking",
        "_connection",
        "_cutter",
        "_waiting",
        "begun",
        "ordinary",
        "tell_problems",
        "tell_reached",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cutter: Cutter | None = None
        self._asking: Asking | None = None
        """Where somebody is asked about each topic."""
        self._waiting: Cut | None = None
        """The publications that wait for the answer; their end is counted from their beginning."""
        self.begun: set[int] = set()
        """Packet identifiers of QoS 2 that came on this connection and have not been released."""
        self.ordinary = False
        """It has published something without priority, where priorities are known."""
        self.tell_problems = True
        """Answers may carry user properties (Request Problem Information, 3.1.2.11.7)."""
        self.tell_reached = False
        """Every publication with QoS 1 or 2 is answered as if it asked whom it reaches."""

    def release(self, gone: Connection) -> None:
        """Its connection is over, and `gone` stands for it: the mesh may yet confirm what it has published."""
        self._connection = gone
        if self._asking is not None:
            self._asking.stop()

    @property
    def holdable(self) -> bool:
        """The client is not to be read while links are congested: it publishes, and not to priority topics alone."""
        session = self._connection.session
        if session is None or not session.publisher.published:
            return False
        return self.ordinary or session.hub.priorities is None

    def handle(self, data: bytes, pos: int) -> int:
        """Publish what is at `pos`, where a PUBLISH begins, and what follows of its kind, as many as may be taken at
        once. Returns where they end; `pos` if the first is not complete. Raises `MqttError`."""
        connection, cutter = self._connection, self._cutter or self._begin()
        session = connection.session
        assert session is not None
        most = self._room(session) if data[pos] & 0x06 else MOST
        rights = session.rights
        asker = None if rights is None else rights.asker
        cut = cutter.cut(data, pos, most) if asker is None else self._settled(asker, cutter, data, pos, most)
        if cut is None:
            return pos
        batch, packet_ids, end = cut
        session.publisher.published += len(batch.which)
        if batch.qos:
            self._publish_acknowledged(session, batch, packet_ids, again=bool(data[pos] & 0x08))
        elif NOT_PUBLISHED in (matched := session.hub.publish(batch, session)):
            self._refuse(batch, matched)
        if session.hub.priorities is not None and not self.ordinary:
            self.ordinary = not all(map(session.hub.priorities.urgent, batch.topics))
        return end

    def _settled(self, asker: Asker, cutter: Cutter, data: bytes, pos: int, most: int) -> Cut | None:
        """What is at `pos`, as `Cutter.cut`, once it is known which of its topics are permitted: until then, None, and
        the client is not read. What was cut is kept meanwhile, as to cut is to follow the topic aliases."""
        connection, asking = self._connection, self._asking
        if asking is None:
            asking = self._asking = Asking(connection.frontend.timers, connection.frontend.clock, "publish")
        cut = self._waiting
        if cut is None:
            cut = cutter.cut(data, pos, most)
            if cut is None:
                return None
            cut = cut[0], cut[1], cut[2] - pos
        if not asking.settled(asker, cut[0].topics, connection.flow.finished):
            self._waiting, connection.flow.busy = cut, True
            return None
        self._waiting = None
        return cut[0], cut[1], pos + cut[2]

    def _begin(self) -> Cutter:
        frontend = self._connection.frontend
        limits = frontend.limits
        cutter = self._cutter = Cutter(
            self._connection.outbound.version,
            limits.maximum_packet_size,
            limits.topic_alias_maximum,
            limits.maximum_topic_levels,
            frontend.names,
        )
        return cutter

    def _refuse(self, batch: Batch, matched: Sequence[int]) -> None:
        """The hub has taken the batch, but for what the client may not publish."""
        refused = [batch.topics[number] for number in batch.which if matched[number] == NOT_PUBLISHED]
        self._connection.authorizer.refused(self._connection, refused)

    # ---- QoS 1 and 2

    def _room(self, session: Session) -> int:
        """Publications of QoS 1 and 2 that may be taken at once: no more than the client may have under way (3.3.4), or
        than a subscriber's queue takes while it is not more than half full."""
        limits = self._connection.frontend.limits
        room = max(1, min(MOST, limits.maximum_queued // 2))
        if self._connection.outbound.version == V5:
            room = max(1, min(room, limits.receive_maximum - self._under_way(session)))
        return room

    def _under_way(self, session: Session) -> int:
        """Publications of QoS 1 and 2 that are not acknowledged."""
        return self._connection.flow.awaiting + len(session.incoming or ())

    def _publish_acknowledged(
        self, session: Session, batch: Batch, packet_ids: Sequence[bytes], *, again: bool
    ) -> None:
        connection, flow = self._connection, self._connection.flow
        limits, is_v5 = connection.frontend.limits, connection.outbound.version == V5
        if batch.qos == 2:
            new = self._new(session, batch, packet_ids, again)
            if not new:
                return
            batch, packet_ids = batch.select(new), [packet_ids[index] for index in new]
        if is_v5 and self._under_way(session) >= limits.receive_maximum:
            raise ProtocolError("more publications than the receive maximum", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if (refusal := connection.frontend.storage.refusal) is not None:
            if not is_v5:
                raise ProtocolError("its publication cannot be stored", refusal)
            for packet_id in packet_ids:
                self._answer(packet_id, batch.qos, refusal)
            return
        if batch.qos == 2:
            incoming = session.incoming
            assert incoming is not None
            for packet_id in packet_ids:
                incoming[int.from_bytes(packet_id)] = -1
                self.begun.add(int.from_bytes(packet_id))
            matched = session.hub.publish(batch, session, partial(self._received, session, batch, packet_ids))
        else:
            flow.awaiting += len(packet_ids)
            matched = session.hub.publish(batch, session, partial(self._confirmed, batch, packet_ids))
            if flow.awaiting > limits.receive_maximum:
                flow.update()
        if NOT_PUBLISHED in matched:
            self._refuse(batch, matched)

    def _confirmed(self, batch: Batch, packet_ids: Sequence[bytes], reached: Sequence[Reached]) -> None:
        """The whole mesh has a batch with QoS 1: acknowledge it."""
        connection = self._connection
        connection.flow.awaiting -= len(packet_ids)
        if connection.closing:
            return
        if self._asks(batch):
            for single, number, packet_id in zip(batch.singles, batch.which, packet_ids, strict=True):
                self._tell(single, packet_id, reached[number])
        elif len(reached) == 1:
            self._acknowledge(1, packet_ids, reached[0])
        else:
            self._acknowledge_alike(batch.which, packet_ids, reached)
        if not connection.flow.reading:
            connection.flow.update()

    def _acknowledge_alike(self, which: Sequence[int], packet_ids: Sequence[bytes], reached: Sequence[Reached]) -> None:
        """PUBACK for publications to several topics: those that follow each other and have the same answer together."""
        answers = [(each is REFUSED, each.subscribers > 0) for each in reached]
        begin = 0
        for _, alike in groupby(which, key=answers.__getitem__):
            numbers = list(alike)
            self._acknowledge(1, packet_ids[begin : begin + len(numbers)], reached[numbers[0]])
            begin += len(numbers)

    # ---- QoS 2

    def _new(self, session: Session, batch: Batch, packet_ids: Sequence[bytes], again: bool) -> list[int]:
        """Which publications of a batch with QoS 2 are not repeated ones; those are answered. `again`: their DUP flag.

        A client that repeats on a new connection says so (MQTT-3.3.1-1). Without DUP an identifier known from before,
        or from a copy of the session elsewhere that has not heard of its release, is a new message's."""
        incoming = session.incoming
        if incoming is None:
            incoming = session.incoming = {}
        new: dict[int, int] = {}
        for index, packet_id in enumerate(map(int.from_bytes, packet_ids)):
            known = incoming.get(packet_id)
            if known is None or (known != -1 and not again and packet_id not in self.begun):
                new.setdefault(packet_id, index)
            elif known >= 0:
                self._tell(batch.singles[index], packet_ids[index], Reached(0, known))
            elif known == HALF_DONE:  # those here have it; the mesh may not, as the broker died
                incoming[packet_id] = -1
                single = batch.singles[index]
                done = partial(self._received, session, single, [packet_ids[index]])
                if NOT_PUBLISHED in (matched := session.hub.publish_remote(single, session, done)):
                    self._refuse(single, matched)
        return list(new.values())

    def _received(
        self, session: Session, batch: Batch, packet_ids: Sequence[bytes], reached: Sequence[Reached]
    ) -> None:
        """The whole mesh has a batch with QoS 2: PUBREC, on the session's present connection."""
        incoming, present = session.incoming, session.connection
        if incoming is None:
            return
        for single, number, packet_id in zip(batch.singles, batch.which, packet_ids, strict=True):
            key = int.from_bytes(packet_id)
            if key not in incoming:
                continue
            if reached[number] is REFUSED:
                incoming.pop(key)
            else:
                incoming[key] = reached[number].subscribers
            if present is not None:
                present.publishes._tell(single, packet_id, reached[number])

    # ---- answers

    def _tell(self, single: Batch, packet_id: bytes, reached: Reached) -> None:
        """PUBACK or PUBREC for one publication, which may ask whom it reaches."""
        if reached is REFUSED or self._connection.outbound.version != V5 or not self._asks(single):
            self._acknowledge(single.qos, [packet_id], reached)
            return
        reason = Reason.SUCCESS if reached.subscribers else Reason.NO_MATCHING_SUBSCRIBERS
        told = ((TELL, str(reached.subscribers)), (TELL_BROKERS, str(reached.brokers)))
        self._answer(packet_id, single.qos, reason, told[: 1 + self.tell_reached])

    def _acknowledge(self, qos: int, packet_ids: Sequence[bytes], reached: Reached) -> None:
        """PUBACK or PUBREC for publications that have reached the same. MQTT 5 is told when nobody has subscribed, and
        when the topic is not permitted; 3.1.1 has no word for it, and who is cut off would publish it again
        (MQTT-3.3.5-2)."""
        outbound = self._connection.outbound
        self._connection.frontend.counts.answered += len(packet_ids)
        if reached.subscribers > 0 or outbound.version != V5:
            head = bytes((_HEADS[qos], 2))
            outbound.write(head + head.join(packet_ids))
        else:
            head = bytes((_HEADS[qos], 3))
            reason = Reason.NOT_AUTHORIZED if reached is REFUSED else Reason.NO_MATCHING_SUBSCRIBERS
            outbound.write(b"".join([head + packet_id + bytes((reason,)) for packet_id in packet_ids]))

    def _answer(self, packet_id: bytes, qos: int, reason: Reason, told: tuple[tuple[str, str], ...] = ()) -> None:
        """Answer with `reason` and, where the client allows it (3.1.2.11.7, 3.4.2.2.3), these user properties."""
        outbound, number = self._connection.outbound, int.from_bytes(packet_id)
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        full = Ack(kind, number, reason, {Property.USER_PROPERTY: told} if told and self.tell_problems else {})
        if not outbound.answer(full):
            outbound.answer(Ack(kind, number, reason))

    def _asks(self, batch: Batch) -> bool:
        """Does the publisher want to know how many subscribers it reaches?"""
        return self.tell_reached or (batch.properties is not None and any(map(_asks, batch.properties)))


def _asks(properties: Properties | None) -> bool:
    return properties is not None and any(name == TELL for name, _ in properties.user)
