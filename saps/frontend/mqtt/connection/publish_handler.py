"""Handles PUBLISH packets of every QoS, and acknowledges them (MQTT 5.0, sections 3.3, 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from saps.agents.user import Asker
from saps.frontend.mqtt.access.authorizer import Authorizer
from saps.frontend.mqtt.codec.packets import V5, Ack, PacketType
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.publish_cut import Cut, Cutter
from saps.frontend.mqtt.codec.reasons import ProtocolError, Reason
from saps.frontend.mqtt.common import Common
from saps.frontend.mqtt.connection.flow_control import FlowControl
from saps.frontend.mqtt.connection.outbound import Outbound
from saps.frontend.mqtt.connection.permission import PermissionRequest
from saps.frontend.mqtt.session.session import HALF_DONE, Session
from saps.messages import REFUSED, Reached
from saps.routing.batch import MOST, Batch
from saps.routing.hub import NOT_PUBLISHED

TELL = "saps-reached"
"""User property of a publication that asks for its number of subscribers, and of the PUBACK or PUBREC that answers."""
TELL_BROKERS = "saps-reached-brokers"
"""User property beside `TELL` in the answer: the number of other brokers that have the publication."""
_HEADS = {1: 0x40, 2: 0x50}
"""First bytes of PUBACK and PUBREC, by QoS."""


class PublishHandler:
    """Publishes for one client, and acknowledges its publications."""

    __slots__ = ("_authorizer", "_common", "_cutter", "_flow", "_outbound", "_permission", "_waiting", "begun")

    def __init__(self, common: Common, outbound: Outbound, flow: FlowControl, authorizer: Authorizer) -> None:
        self._common = common
        self._outbound = outbound
        self._flow = flow
        self._authorizer = authorizer
        self._cutter: Cutter | None = None
        self._permission: PermissionRequest | None = None
        """Settles the rights to each topic, if the client's rights have an asker."""
        self._waiting: Cut | None = None
        """Publications that wait for their rights. Their end is relative to their beginning."""
        self.begun: set[int] = set()
        """QoS 2 packet identifiers that arrived on this connection and are not released yet."""

    def stop(self) -> None:
        """Ask no more about rights. Call this when the connection ends; the mesh may still confirm publications."""
        if self._permission is not None:
            self._permission.stop()

    def handle(self, session: Session, data: bytes, pos: int) -> int:
        """Publish the packets from the PUBLISH at `pos` on that form one batch, as many as fit at once.

        Returns the position of their end, or `pos` if the first is incomplete or has to wait. Raises `MqttError`.
        """
        cutter, flow = self._cutter or self._begin(), self._flow
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
        if session.hub.priorities is not None and not flow.ordinary:
            flow.ordinary = not all(map(session.hub.priorities.urgent, batch.topics))
        return end

    def _settled(self, asker: Asker, cutter: Cutter, data: bytes, pos: int, most: int) -> Cut | None:
        """Return the publications at `pos` as `Cutter.cut` does, once the rights to their topics are settled.

        Returns None until then, and the client is not read. The cut publications are kept meanwhile: to cut them again
        would apply their topic aliases twice.
        """
        permission, flow = self._permission, self._flow
        if permission is None:
            permission = self._permission = PermissionRequest(self._common.timers, self._common.clock, "publish")
        cut = self._waiting
        if cut is None:
            cut = cutter.cut(data, pos, most)
            if cut is None:
                return None
            cut = cut[0], cut[1], cut[2] - pos
        if not permission.settled(asker, cut[0].topics, flow.finished):
            self._waiting, flow.busy = cut, True
            return None
        self._waiting = None
        return cut[0], cut[1], pos + cut[2]

    def _begin(self) -> Cutter:
        limits = self._common.limits
        cutter = self._cutter = Cutter(
            self._outbound.version,
            limits.maximum_packet_size,
            limits.topic_alias_maximum,
            limits.maximum_topic_levels,
            self._common.names,
        )
        return cutter

    def _refuse(self, batch: Batch, matched: Sequence[int]) -> None:
        """Report the publications that the hub has refused because the client may not publish them."""
        refused = [batch.topics[number] for number in batch.which if matched[number] == NOT_PUBLISHED]
        self._authorizer.refused(self._outbound.output.owner.label, refused)

    # ---- QoS 1 and 2

    def _room(self, session: Session) -> int:
        """Return the most publications with QoS 1 or 2 to handle at once.

        They must fit the client's receive maximum (3.3.4), and half of a subscriber's queue.
        """
        limits = self._common.limits
        room = max(1, min(MOST, limits.maximum_queued // 2))
        if self._outbound.version == V5:
            room = max(1, min(room, limits.receive_maximum - self._under_way(session)))
        return room

    def _under_way(self, session: Session) -> int:
        """Return the number of unacknowledged publications with QoS 1 and 2."""
        return self._flow.awaiting + len(session.incoming or ())

    def _publish_acknowledged(
        self, session: Session, batch: Batch, packet_ids: Sequence[bytes], *, again: bool
    ) -> None:
        flow, limits, is_v5 = self._flow, self._common.limits, self._outbound.version == V5
        if batch.qos == 2:
            new = self._new(session, batch, packet_ids, again)
            if not new:
                return
            batch, packet_ids = batch.select(new), [packet_ids[index] for index in new]
        if is_v5 and self._under_way(session) >= limits.receive_maximum:
            raise ProtocolError("more publications than the receive maximum", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if (refusal := self._common.storage.refusal) is not None:
            if not is_v5:
                raise ProtocolError("its publication cannot be stored", refusal)
            for packet_id in packet_ids:
                _answer(self._outbound, packet_id, batch.qos, refusal)
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
        """Acknowledge a batch with QoS 1 that the mesh has confirmed."""
        flow = self._flow
        flow.awaiting -= len(packet_ids)
        if flow.output.closing or self._common.storage.ends(self._outbound):
            return
        if _asks(self._outbound, batch):
            for single, number, packet_id in zip(batch.singles, batch.which, packet_ids, strict=True):
                _tell(self._outbound, single, packet_id, reached[number])
        elif len(reached) == 1:
            _acknowledge(self._outbound, 1, packet_ids, reached[0])
        else:
            self._acknowledge_alike(batch.which, packet_ids, reached)
        if not flow.reading:
            flow.update()

    def _acknowledge_alike(self, which: Sequence[int], packet_ids: Sequence[bytes], reached: Sequence[Reached]) -> None:
        """Send PUBACKs for publications to several topics; consecutive ones with equal answers are sent together."""
        answers = [(each is REFUSED, each.subscribers > 0) for each in reached]
        begin = 0
        for _, alike in groupby(which, key=answers.__getitem__):
            numbers = list(alike)
            _acknowledge(self._outbound, 1, packet_ids[begin : begin + len(numbers)], reached[numbers[0]])
            begin += len(numbers)

    # ---- QoS 2

    def _new(self, session: Session, batch: Batch, packet_ids: Sequence[bytes], again: bool) -> list[int]:
        """Return the indexes of the new publications in a batch with QoS 2, and answer the retransmitted ones.

        `again` is the DUP flag of the batch. A client must set it to retransmit on a new connection (MQTT-3.3.1-1). So
        without DUP an identifier of an earlier connection belongs to a new message. The session may still know that
        identifier, as a copy of it on another broker has not heard of the release.
        """
        incoming = session.incoming
        if incoming is None:
            incoming = session.incoming = {}
        new: dict[int, int] = {}
        for index, packet_id in enumerate(map(int.from_bytes, packet_ids)):
            known = incoming.get(packet_id)
            if known is None or (known != -1 and not again and packet_id not in self.begun):
                new.setdefault(packet_id, index)
            elif known >= 0 and not self._common.storage.ends(self._outbound):
                _tell(self._outbound, batch.singles[index], packet_ids[index], Reached(0, known))
            elif known == HALF_DONE:  # the local subscribers have it; the mesh may not, as the broker crashed
                incoming[packet_id] = -1
                single = batch.singles[index]
                done = partial(self._received, session, single, [packet_ids[index]])
                if NOT_PUBLISHED in (matched := session.hub.publish_remote(single, session, done)):
                    self._refuse(single, matched)
        return list(new.values())

    def _received(
        self, session: Session, batch: Batch, packet_ids: Sequence[bytes], reached: Sequence[Reached]
    ) -> None:
        """Send PUBRECs for a batch with QoS 2 that the mesh has confirmed, on the session's current connection."""
        incoming, outbound = session.incoming, session.outbound
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
            if outbound is not None and not self._common.storage.ends(outbound):
                _tell(outbound, single, packet_id, reached[number])


def _tell(outbound: Outbound, single: Batch, packet_id: bytes, reached: Reached) -> None:
    """Send the PUBACK or PUBREC of one publication, with the numbers it asks for, if any."""
    if reached is REFUSED or outbound.version != V5 or not _asks(outbound, single):
        _acknowledge(outbound, single.qos, [packet_id], reached)
        return
    reason = Reason.SUCCESS if reached.subscribers else Reason.NO_MATCHING_SUBSCRIBERS
    told = ((TELL, str(reached.subscribers)), (TELL_BROKERS, str(reached.brokers)))
    _answer(outbound, packet_id, single.qos, reason, told[: 1 + outbound.output.tell_reached])


def _acknowledge(outbound: Outbound, qos: int, packet_ids: Sequence[bytes], reached: Reached) -> None:
    """Send PUBACKs or PUBRECs for publications with the same result.

    MQTT 5.0 clients learn if nobody has subscribed, and if the topic is not permitted. MQTT 3.1.1 has no code for
    either. A disconnected 3.1.1 client would only publish again, so it gets a success (MQTT-3.3.5-2).
    """
    outbound.common.counts.answered += len(packet_ids)
    if reached.subscribers > 0 or outbound.version != V5:
        head = bytes((_HEADS[qos], 2))
        outbound.output.write(head + head.join(packet_ids))
    else:
        head = bytes((_HEADS[qos], 3))
        reason = Reason.NOT_AUTHORIZED if reached is REFUSED else Reason.NO_MATCHING_SUBSCRIBERS
        outbound.output.write(b"".join([head + packet_id + bytes((reason,)) for packet_id in packet_ids]))


def _answer(
    outbound: Outbound, packet_id: bytes, qos: int, reason: Reason, told: tuple[tuple[str, str], ...] = ()
) -> None:
    """Answer with `reason`, and the user properties `told` if the client allows them (3.1.2.11.7, 3.4.2.2.3)."""
    number, kind = int.from_bytes(packet_id), PacketType.PUBACK if qos == 1 else PacketType.PUBREC
    full = Ack(kind, number, reason, {Property.USER_PROPERTY: told} if told and outbound.output.tell_problems else {})
    if not outbound.answer(full):
        outbound.answer(Ack(kind, number, reason))


def _asks(outbound: Outbound, batch: Batch) -> bool:
    """Return whether a publication of the batch asks how many subscribers it reaches."""
    if outbound.output.tell_reached:
        return True
    wanted = batch.properties or ()
    return any(each is not None and any(name == TELL for name, _ in each.user) for each in wanted)
