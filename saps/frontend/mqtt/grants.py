"""One SUBSCRIBE packet until its SUBACK (MQTT 5.0, sections 3.8 and 3.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saps.frontend.mqtt.encode import encode
from saps.frontend.mqtt.packets import V5, Suback, Subscribe, SubscribeEntry
from saps.frontend.mqtt.properties import Property
from saps.frontend.mqtt.reasons import SUBACK_FAILURE_311, Reason
from saps.subscriptions import Subscription, Target
from saps.topics import filter_fault

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
        for entry in self._packet.entries:
            refusal = self._refusal(entry)
            self._reasons.append(entry.qos if refusal is None else refusal)
            if refusal is None:
                self._subscribe(entry, identifiers[0])
        self._done()

    def _refusal(self, entry: SubscribeEntry) -> int | None:
        if entry.filter == "$share" or entry.filter.startswith("$share/"):
            reason = Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        elif filter_fault(entry.filter) is not None:
            reason = Reason.TOPIC_FILTER_INVALID
        elif (rights := self._session.rights) is not None and not rights.may_subscribe(entry.filter):
            reason = Reason.NOT_AUTHORIZED
        else:
            return None
        return reason if self._connection.version == V5 else SUBACK_FAILURE_311

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
        if entry.retain_handling == 0 or (entry.retain_handling == 1 and new):
            self._retained.append(subscription)
        self._waiting += 1
        self._session.subscribe(subscription, self._done)

    def _done(self) -> None:
        self._waiting -= 1
        session, connection = self._session, self._connection
        if self._waiting or session.connection is not connection:
            return
        connection.write(encode(Suback(self._packet.packet_id, self._reasons), connection.version))
        rights = session.rights
        for subscription in self._retained:
            target = Target(session, (subscription,))
            for publication in session.hub.retained_for(subscription.filter):
                if rights is None or rights.may_read(publication.message.topic):
                    session.deliver(publication, target)
