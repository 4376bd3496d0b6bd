"""One SUBSCRIBE packet until its SUBACK (MQTT 5.0, sections 3.8 and 3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.packets import V5, Suback, Subscribe, SubscribeEntry
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.reasons import SUBACK_FAILURE_311, ProtocolError, Reason
from saps.messages import Subscription
from saps.topics import filter_fault, shared, shared_fault

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection import Connection
    from saps.frontend.mqtt.session import Session


class Grants:
    """Subscribes to each filter of the packet; answers when the mesh has taken up all of them, then sends what is
    retained."""

    def __init__(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        self._connection = connection
        self._session = session
        self._packet = packet
        self._reasons: list[int] = []
        self._retained: list[Subscription] = []
        self._waiting = 1

    def start(self) -> None:
        """Subscribe. The answer follows at once or later."""
        identifiers = self._packet.properties.get(Property.SUBSCRIPTION_IDENTIFIER, (None,))
        most = self._session.limits.maximum_subscriptions
        for number, entry in enumerate(self._packet.entries):
            refusal = self._refusal(entry) if number < most else self._told(Reason.QUOTA_EXCEEDED)
            self._reasons.append(entry.qos if refusal is None else refusal)
            if refusal is None:
                self._subscribe(entry, identifiers[0])
        self._done()

    def _refusal(self, entry: SubscribeEntry) -> int | None:
        limits, subscriptions = self._session.limits, self._session.subscriptions
        parts = shared(entry.filter)
        wanted = entry.filter if parts is None else parts.topic_filter
        if parts is not None and entry.no_local:
            raise ProtocolError("no local in a shared subscription (MQTT-3.8.3-4)")
        fault = shared_fault if entry.filter.partition("/")[0] == "$share" else filter_fault
        if fault(entry.filter) is not None or wanted.count("/") >= limits.maximum_topic_levels:
            reason = Reason.TOPIC_FILTER_INVALID
        elif (rights := self._session.rights) is not None and not rights.may_subscribe(wanted):
            reason = Reason.NOT_AUTHORIZED
        elif len(subscriptions) >= limits.maximum_subscriptions and entry.filter not in subscriptions:
            reason = Reason.QUOTA_EXCEEDED
        elif self._session.stored and self._connection.frontend.refusal is not None:
            reason = self._connection.frontend.refusal
        else:
            return None
        return self._told(reason)

    def _told(self, reason: Reason) -> int:
        """The reason as the client understands it."""
        return reason if self._connection.outbound.version == V5 else SUBACK_FAILURE_311

    def _subscribe(self, entry: SubscribeEntry, identifier: int | None) -> None:
        subscription = Subscription(
            entry.filter,
            entry.qos,
            entry.no_local,
            entry.retain_as_published,
            entry.retain_handling,
            identifier,
        )
        new = entry.filter not in self._session.subscriptions
        wanted = entry.retain_handling == 0 or (entry.retain_handling == 1 and new)
        if wanted and shared(entry.filter) is None:  # a shared one gets nothing that is retained (4.8.2)
            self._retained.append(subscription)
        self._waiting += 1
        self._session.subscribe(subscription, self._done)

    def _done(self) -> None:
        self._waiting -= 1
        session, connection = self._session, self._connection
        if self._waiting or session.connection is not connection:
            return
        connection.outbound.answer(Suback(self._packet.packet_id, self._reasons))
        for subscription in self._retained:
            found = session.hub.retained_for(subscription.filter, session)
            if connection.frontend.status is not None:
                own = connection.frontend.status.matching(subscription.filter)
                found += [single for single in own if session.may_read(single.topic)]
            session.replay(found, subscription)
