"""One SUBSCRIBE packet until its SUBACK (MQTT 5.0, sections 3.8 and 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from saps.frontend.mqtt.codec.packets import V5, Suback, Subscribe, SubscribeEntry
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.codec.reasons import SUBACK_FAILURE_311, Reason
from saps.frontend.mqtt.connection.asking import Asking
from saps.messages import Subscription
from saps.topics import shared

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.session.session import Session


AT_ONCE = 64
"""Filters of a packet that are subscribed to in one turn: less than 5 ms of work, then others are served."""
PAUSE = 0.001
"""Seconds between two slices, at least."""
UNDER_WAY = 512
"""Filters of a packet that wait for the mesh at the same time: more would keep others' waiting behind them."""


class Grants:
    """Subscribes to each filter of the packet, a slice of them at a time; answers when the mesh has taken up all of
    them, then sends what is retained. The client is not read until the last slice has begun."""

    def __init__(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        self._connection = connection
        self._session = session
        self._packet = packet
        self._identifier = packet.properties.get(Property.SUBSCRIPTION_IDENTIFIER, (None,))[0]
        self._reasons: list[int] = []
        self._retained: list[Subscription] = []
        self._under_way = 0
        self._complete = False
        """All slices have begun."""
        self._asking = Asking(connection.frontend.timers, connection.frontend.clock, "subscribe")
        self._scheduled = True
        """Another slice follows, now or at a timer; False: when what is under way allows it."""

    def start(self) -> None:
        """Subscribe. The answer follows at once or later."""
        self._connection.flow.busy = True
        self._slice(0.0)

    def _slice(self, now: float) -> None:
        """Subscribe to the next filters."""
        most = self._connection.frontend.limits.maximum_subscriptions
        begun = len(self._reasons)
        fairness = self._connection.frontend.fairness
        if self._present and (wait := fairness.wait_to_subscribe(self._connection)):
            self._connection.frontend.timers.at(self._connection.frontend.clock() + wait, self._slice)
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
        """Have the next slice begin, if there is room for it."""
        if not self._scheduled and self._under_way <= UNDER_WAY - AT_ONCE:
            self._scheduled = True
            frontend = self._connection.frontend
            frontend.timers.at(frontend.clock() + PAUSE, self._slice)

    @property
    def _present(self) -> bool:
        """The client that has sent the packet is there, and has this session."""
        return self._session.connection is self._connection

    def _settled(self, entries: Sequence[SubscribeEntry]) -> bool:
        """It is known if these filters are permitted; False: the slice begins anew when it is."""
        rights = self._session.rights
        if rights is None or rights.asker is None:
            return True
        return self._asking.settled(rights.asker, [_wanted(each) for each in entries], partial(self._slice, 0.0))

    def _refusal(self, entry: SubscribeEntry) -> int | None:
        limits, subscriptions = self._connection.frontend.limits, self._session.subscriptions
        wanted = _wanted(entry)
        if wanted.count("/") >= limits.maximum_topic_levels:
            reason = Reason.TOPIC_FILTER_INVALID
        elif (rights := self._session.rights) is not None and not rights.may_subscribe(wanted):
            reason = Reason.NOT_AUTHORIZED
        elif len(subscriptions) >= limits.maximum_subscriptions and entry.filter not in subscriptions:
            reason = Reason.QUOTA_EXCEEDED
        elif self._session.stored and self._connection.frontend.storage.refusal is not None:
            reason = self._connection.frontend.storage.refusal
        else:
            return None
        return self._told(reason)

    def _told(self, reason: Reason) -> int:
        """The reason as the client understands it."""
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
        if wanted and shared(entry.filter) is None:  # a shared one gets nothing that is retained (4.8.2)
            self._retained.append(subscription)
        self._under_way += 1
        self._session.subscribe(subscription, self._done)

    def _done(self) -> None:
        """The mesh has taken up one of the filters."""
        self._under_way -= 1
        self._go_on()
        self._answer_if_done()

    def _answer_if_done(self) -> None:
        if self._complete and not self._under_way and self._present:
            self._connection.outbound.answer(Suback(self._packet.packet_id, self._reasons))
            self._replay(0.0)

    def _replay(self, now: float) -> None:
        """Send what is retained for the next subscriptions."""
        session, connection = self._session, self._connection
        if not self._present:
            return
        for subscription in reversed(self._retained[-AT_ONCE:]):
            found = session.hub.retained_for(subscription.filter, session)
            if connection.frontend.status is not None:
                own = connection.frontend.status.matching(subscription.filter)
                found += [single for single in own if session.may_read(single.topic)]
            session.replay_retained(found, subscription)
        del self._retained[-AT_ONCE:]
        if self._retained:
            connection.frontend.timers.at(connection.frontend.clock() + PAUSE, self._replay)


def _wanted(entry: SubscribeEntry) -> str:
    """The filter, without ``$share`` and the group."""
    parts = shared(entry.filter)
    return entry.filter if parts is None else parts.topic_filter
