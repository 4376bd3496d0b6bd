"""Handles one SUBSCRIBE packet until its SUBACK (MQTT 5.0, sections 3.8 and 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.packets import V5, Suback, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import SUBACK_FAILURE_311, Reason
from saps.frontend.mqtt.connection.permission import PermissionRequest
from saps.messages import Subscription
from saps.topics import shared

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.client_connection import ClientConnection
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.session.session import Session


AT_ONCE = 64
"""Most filters of a packet in one slice: less than 5 ms of work before other clients are served."""
MESSAGES_AT_ONCE = 1000
"""Retained messages in one slice, beyond which it ends."""
PAUSE = 0.001
"""Shortest pause between two slices in seconds."""
UNDER_WAY = 512
"""Most filters of a packet that wait for the mesh. More would delay the filters of other clients."""


class Grants:
    """Subscribes to the filters of one packet, a slice at a time.

    It sends the SUBACK when the mesh has confirmed all filters, and then the retained messages. The client is not read
    until the last slice has begun.
    """

    def __init__(self, frontend: Frontend, connection: ClientConnection, session: Session, packet: Subscribe) -> None:
        self._frontend = frontend
        self._connection = connection
        self._session = session
        self._packet = packet
        self._identifier = packet.properties.get(Property.SUBSCRIPTION_IDENTIFIER, (None,))[0]
        self._reasons: list[int] = []
        self._retained: list[Subscription] = []
        self._under_way = 0
        self._complete = False
        """Whether all slices have begun."""
        self._permission = PermissionRequest(frontend.timers, frontend.clock, "subscribe")
        self._scheduled = True
        """Whether a slice runs or has a timer. Otherwise the next slice waits for filters under way."""

    def start(self) -> None:
        """Begin to subscribe. The SUBACK follows at once or later."""
        self._connection.flow.busy = True
        self._slice(0.0)

    def _slice(self, now: float) -> None:
        """Subscribe to the next filters."""
        most = self._frontend.limits.maximum_subscriptions
        begun = len(self._reasons)
        fairness = self._frontend.fairness
        if self._present and (wait := fairness.wait_to_subscribe(self._connection)):
            self._frontend.timers.at(self._frontend.clock() + wait, self._slice)
            return
        if self._present and not self._settled(self._packet.entries[begun : begun + AT_ONCE]):
            return
        if self._present:
            fairness.subscribed(self._connection, len(self._packet.entries[begun : begun + AT_ONCE]))
            for number, entry in enumerate(self._packet.entries[begun : begun + AT_ONCE], begun):
                refusal = self._refusal(entry) if number < most else self._told(Reason.QUOTA_EXCEEDED)
                self._reasons.append(entry.qos if refusal is None else refusal)
                if refusal is None:
                    self._subscribe(entry)
        self._scheduled = False
        if not self._present or len(self._reasons) == len(self._packet.entries):
            self._scheduled = self._complete = True
            self._retained.reverse()
            self._connection.flow.finished()
            self._answer_if_done()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Schedule the next slice, if enough of the filters under way are done."""
        if not self._scheduled and self._under_way <= UNDER_WAY - AT_ONCE:
            self._scheduled = True
            self._frontend.timers.at(self._frontend.clock() + PAUSE, self._slice)

    @property
    def _present(self) -> bool:
        """Whether the connection that sent the packet still has the session."""
        return self._session.connection is self._connection

    def _settled(self, entries: Sequence[SubscribeEntry]) -> bool:
        """Return whether the rights to these filters are settled. If not, the slice starts again when they are."""
        rights = self._session.rights
        if rights is None or rights.asker is None:
            return True
        return self._permission.settled(rights.asker, [_wanted(each) for each in entries], partial(self._slice, 0.0))

    def _refusal(self, entry: SubscribeEntry) -> int | None:
        limits, subscriptions = self._frontend.limits, self._session.subscriptions
        wanted = _wanted(entry)
        if wanted.count("/") >= limits.maximum_topic_levels:
            reason = Reason.TOPIC_FILTER_INVALID
        elif (rights := self._session.rights) is not None and not rights.may_subscribe(wanted):
            reason = Reason.NOT_AUTHORIZED
        elif len(subscriptions) >= limits.maximum_subscriptions and entry.filter not in subscriptions:
            reason = Reason.QUOTA_EXCEEDED
        elif self._session.stored and self._frontend.storage.refusal is not None:
            reason = self._frontend.storage.refusal
        else:
            return None
        return self._told(reason)

    def _told(self, reason: Reason) -> int:
        """Return the SUBACK code of a failure in the client's protocol version."""
        return reason if self._connection.outbound.version == V5 else SUBACK_FAILURE_311

    def _subscribe(self, entry: SubscribeEntry) -> None:
        subscription = Subscription(
            entry.filter,
            entry.qos,
            entry.no_local,
            entry.retain_as_published,
            entry.retain_handling,
            self._identifier,
        )
        new = entry.filter not in self._session.subscriptions
        wanted = entry.retain_handling == 0 or (entry.retain_handling == 1 and new)
        if wanted and shared(entry.filter) is None:  # shared subscriptions get no retained messages (4.8.2)
            self._retained.append(subscription)
        self._under_way += 1
        self._session.subscribe(subscription, self._done)

    def _done(self) -> None:
        """Count a filter that the mesh has confirmed."""
        self._under_way -= 1
        self._go_on()
        self._answer_if_done()

    def _answer_if_done(self) -> None:
        if self._complete and not self._under_way and self._present:
            self._connection.outbound.answer(Suback(self._packet.packet_id, self._reasons))
            self._replay(0.0)

    def _replay(self, now: float) -> None:
        """Send the retained messages for the next subscriptions."""
        session = self._session
        if not self._present:
            return
        sent = 0
        for subscription in reversed(self._retained[-AT_ONCE:]):
            self._retained.pop()
            found = session.hub.retained_for(subscription.filter, session)
            if self._frontend.status is not None:
                own = self._frontend.status.matching(subscription.filter)
                found += [single for single in own if session.may_read(single.topic)]
            session.replay_retained(found, subscription)
            sent += len(found)
            if sent >= MESSAGES_AT_ONCE:
                break
        if self._retained:
            self._frontend.timers.at(self._frontend.clock() + PAUSE, self._replay)


def _wanted(entry: SubscribeEntry) -> str:
    """Return the filter without ``$share`` and the group."""
    parts = shared(entry.filter)
    return entry.filter if parts is None else parts.topic_filter
