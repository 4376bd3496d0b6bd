"""Sessions that follow their clients from broker to broker (MQTT 5.0, sections 3.1.4 and 4.1).

A CONNECT whose session may be elsewhere waits here until the mesh has said where it is, and brought it. The other half
is what the mesh asks of a broker whose client has connected to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from saps.agents.user import SubscriberAgent
from saps.batch import Batch, Form
from saps.frontend.mqtt.luggage import Item, Part, Settings, described, packed, unpacked
from saps.frontend.mqtt.publish_encode import form_for
from saps.frontend.mqtt.session import HALF_DONE, Copy
from saps.mesh import Arrival, Sessions, Yields
from saps.messages import Message
from saps.subscriptions import Target
from saps.topics import shared

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection import Connection
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.session import Session

Enter = Callable[[Arrival], None]
"""Goes on with a CONNECT."""
Waiting = tuple["Connection", Enter]


def _nothing() -> None:
    pass


class Roaming:
    """The sessions of one frontend in the mesh. (A `saps.mesh.SessionHost`.)"""

    def __init__(self, frontend: Frontend, sessions: Sessions) -> None:
        self._frontend = frontend
        self._sessions = sessions
        self._arrivals: dict[str, list[Waiting]] = {}
        """By client: the CONNECTs that wait, in their order."""
        self._leaving: dict[str, tuple[float, float]] = {}
        """Clients whose session is being handed over, with the times at which it would end and its will be due."""
        self._coming: set[str] = set()
        """Clients whose session comes from another broker."""
        self._ended: list[str] = []
        """Whose sessions have ended since the mesh was last told."""

    # ---- the connections' side

    def must_wait(self, client: str, assigned: bool, expiry: int) -> bool:
        """May another broker have a session of this client? `assigned`: nobody else can know the identifier."""
        if assigned and not expiry:
            return False
        return client in self._arrivals or not self._sessions.at_home(client)

    def wait(self, connection: Connection, client: str, clean_start: bool, enter: Enter) -> None:
        """Run `enter` when it is known where the client's session is, and it is here. That may be at once."""
        waiting = self._arrivals.get(client)
        if waiting is not None:
            waiting.append((connection, enter))
            return
        self._arrivals[client] = [(connection, enter)]
        self._sessions.claim(client, connection.user, not clean_start, partial(self._arrived, client))

    def _arrived(self, client: str, arrival: Arrival) -> None:
        frontend = self._frontend
        present = [(connection, enter) for connection, enter in self._arrivals.pop(client) if not connection.closing]
        for _, enter in present[:-1]:
            enter(Arrival.LATER)
        for _, enter in present[-1:]:
            enter(arrival)
        session = frontend.sessions.get(client)
        if session is None:
            self._sessions.release(client)
        elif client in self._coming and session.connection is None:  # its client has not waited
            frontend.away(session)
        self._coming.discard(client)

    def adopt(self, client: str, claim: Callable[[Enter], bool], settle: Callable[[Session], None]) -> bool:
        """Have a session whose client has not connected here, by `claim`. False if that cannot be. `settle` gets it
        when it is here and before its client does; a CONNECT that waits for one that does not come is to try again."""
        if client in self._arrivals or client in self._frontend.sessions:
            return False
        self._arrivals[client] = []
        if not claim(partial(self._adopted, client, settle)):
            self._arrivals.pop(client, None)
            return False
        return True

    def _adopted(self, client: str, settle: Callable[[Session], None], arrival: Arrival) -> None:
        session = self._frontend.sessions.get(client)
        if arrival is Arrival.MOVED and session is not None:
            settle(session)
        self._arrived(client, arrival if arrival in (Arrival.MOVED, Arrival.LATER) else Arrival.BUSY)

    def moving(self, client: str) -> bool:
        """Is the client's session on its way to or from another broker?"""
        return client in self._leaving or client in self._coming

    def ended(self, client: str) -> None:
        """A session has ended; perhaps another one of the client begins at once."""
        if not self._sessions.claimed(client):
            return
        if not self._ended:
            self._frontend.timers.at(self._frontend.clock(), self._tell_ended)
        self._ended.append(client)

    def _tell_ended(self, now: float) -> None:
        ended, self._ended = self._ended, []
        for client in ended:
            if client not in self._frontend.sessions and client not in self._arrivals:
                self._sessions.release(client)

    # ---- a session that leaves

    def clients(self) -> Iterable[str]:
        return list(self._frontend.sessions)

    def user(self, client: str) -> str | None:
        session = self._frontend.sessions.get(client)
        return None if session is None else session.user

    def surrender(self, client: str, user: str | None, keep: bool) -> Yields:
        frontend = self._frontend
        session = frontend.sessions.get(client)
        if session is None:
            return Yields.NOTHING
        if session.user != user:
            return Yields.FORBIDDEN
        if session.connection is not None:
            session.connection.taken_over()
        if frontend.sessions.get(client) is not session:
            return Yields.NOTHING
        if keep and session.blank:  # perhaps the client has not even heard that it has one
            frontend.void_will(session)
        if not keep or session.blank:
            frontend.end(session)
            return Yields.NOTHING
        self._leaving[client] = session.ends_at, session.will_due
        session.ends_at = session.will_due = inf
        return Yields.SESSION

    def filters(self, client: str) -> list[str]:
        return list(self._frontend.sessions[client].subscriptions)

    def describe(self, client: str) -> list[bytes]:
        session = self._frontend.sessions[client]
        settings = Settings(session.user, session.expiry, session.next_id)
        return described(settings, session.subscriptions.values())

    def pack(self, client: str, force: bool) -> list[bytes] | None:
        session = self._frontend.sessions[client]
        incoming = session.incoming or {}
        if -1 in incoming.values() and not force:
            return None
        for topic_filter in session.subscriptions:
            if shared(topic_filter) is not None:  # what a group gets from now on is not for this one
                session.hub.unsubscribe(session, topic_filter)
        # What is not confirmed yet this broker goes on repeating. What an earlier life of it may have done by half is
        # published anew.
        taken = {packet_id: max(1, reached) for packet_id, reached in incoming.items() if reached != HALF_DONE}
        return packed(self._items(session), taken)

    def _items(self, session: Session) -> Iterator[Item]:
        for packet_id, copy in session.inflight.items():
            yield Item(packet_id) if copy is None else self._item(packet_id, *copy)
        for single, form in session.queue or ():
            yield self._item(0, single, form)
        room = session.limits.maximum_queued
        for retained, subscription in session.backlog or ():
            for single in retained:
                form = form_for(single, Target(session, (subscription,)))
                if room and form.qos and session.still_retained(single):
                    room -= 1
                    yield self._item(0, single, form)

    def _item(self, packet_id: int, single: Batch, form: Form) -> Item:
        deadline = single.deadline
        return Item(
            packet_id,
            single.message,
            form.qos,
            form.retain,
            form.identifiers,
            None if deadline is None else deadline - self._frontend.clock(),
            single.replayed,
            single.origin,
        )

    def depart(self, client: str) -> None:
        session = self._frontend.sessions[client]
        del self._leaving[client]
        session.hand_off()
        self._frontend.void_will(session)
        self._frontend.end(session)

    def stay(self, client: str) -> None:
        frontend = self._frontend
        session = frontend.sessions[client]
        session.ends_at, session.will_due = self._leaving.pop(client)
        for topic_filter, subscription in session.subscriptions.items():
            if shared(topic_filter) is not None:
                session.hub.subscribe(session, subscription, _nothing)
        frontend.away(session)

    # ---- a session that comes

    def receive(self, client: str, parts: list[bytes], subscribed: Callable[[], None]) -> list[str]:
        found = unpacked(parts)
        settings = found[0].settings
        if settings is None:
            raise ValueError("no settings")
        frontend = self._frontend
        if (old := frontend.sessions.get(client)) is not None:  # of before the client was elsewhere
            frontend.void_will(old)
            frontend.end(old)
        session = frontend.sessions[client] = frontend.new_session(client)
        session.user, session.expiry = settings.user, frontend.granted_expiry(settings.expiry)
        session.next_id, session.ends_at = settings.next_id, frontend.clock() + session.expiry
        self._coming.add(client)
        missing = 1

        def one_done() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                subscribed()

        for subscription in [each for part in found for each in part.subscriptions]:
            missing += 1
            SubscriberAgent.subscribe(session, subscription, one_done)
            session.hub.retained.end(session, subscription.filter)  # it has been given what was retained
        one_done()
        return list(session.subscriptions)

    def queued(self, client: str) -> list[Batch]:
        return [single for single, _ in self._frontend.sessions[client].queue or ()]

    def unpack(self, client: str, parts: list[bytes], passed: Callable[[Batch], bool]) -> None:
        found = unpacked(parts)
        session = self._frontend.sessions[client]
        items = [item for part in found for item in part.items]
        known = {item.origin for item in items if item.origin is not None}
        new = [copy for copy in session.queue or () if not passed(copy[0]) and copy[0].origin not in known]
        waiting = [self._copy(item, item.message) for item in items if item.message is not None and not item.packet_id]
        session.adopt(dict(self._inflight(items)), _incoming(found), [*waiting, *new])

    def _inflight(self, items: Iterable[Item]) -> Iterator[tuple[int, Copy | None]]:
        for item in items:
            if item.packet_id:
                yield item.packet_id, None if item.message is None else self._copy(item, item.message)

    def _copy(self, item: Item, message: Message) -> Copy:
        single = Batch.of(message)
        single.replayed = item.retained
        if item.lifetime is not None:
            single.deadlines = [self._frontend.clock() + item.lifetime]
        return single, Form(item.qos, item.retain, item.identifiers)

    def discard(self, client: str) -> None:
        self._coming.discard(client)
        self._frontend.end(self._frontend.sessions[client])


def _incoming(parts: Iterable[Part]) -> dict[int, int]:
    return {packet_id: reached for part in parts for packet_id, reached in part.incoming.items()}
