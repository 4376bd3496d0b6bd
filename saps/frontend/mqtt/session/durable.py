"""Stores sessions, and restores them after a restart (MQTT 5.0, sections 4.1 and 4.4).

The broker stores each session with an expiry interval above 0, and every will. The hub and the connections treat a
stored session like any other. Its containers log their changes in the journal
(`saps.frontend.mqtt.session.journaled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.session.journaled import Copies, Entry, JournaledIncoming, JournaledInflight
from saps.frontend.mqtt.session.message_queue import MessageQueue
from saps.frontend.mqtt.session.session import HALF_DONE, LastWill, Session
from saps.frontend.mqtt.session.window import Copy, following
from saps.marks import hit
from saps.messages import Subscription
from saps.routing.batch import Batch, Form, Origin
from saps.routing.hub import Hub
from saps.routing.subscriptions import Target
from saps.storage.journal import Change, Journal, Stored, Table
from saps.storage.past import Asked, Brought
from saps.storage.saved import SavedCopy, SavedSession

if TYPE_CHECKING:
    from saps.frontend.mqtt.limits import Limits


MADE_UP = 300.0
"""Seconds for which a session drops copies of publications that it already has from another broker.

The publishers' brokers also send these to a broker that was cut off, once they have sent what it missed before."""


def _ignore() -> None:
    pass


class Base(NamedTuple):
    """A session at the broker from which another one has adopted it."""

    number: int
    """Its number there (`DurableSession.number`)."""
    had: frozenset[Origin]
    """The publications in it at the adoption. That broker has them, too, or had them."""


class DurableSession(Session):
    """A session of a broker with storage. `persist` stores it once it has an expiry interval."""

    __slots__ = (
        "_came",
        "_came_until",
        "_copies",
        "_journal",
        "_row",
        "base",
        "birth",
        "number",
        "stored",
    )

    def __init__(
        self, hub: Hub, client_id: str, limits: Limits, budget: Budget, journal: Journal, birth: int, number: int = 0
    ) -> None:
        """Make a session. `birth` identifies it on every broker. `number`: its number in the journal, if it has one."""
        super().__init__(hub, client_id, limits, budget)
        self.birth = birth
        self.base: dict[tuple[str, int], Base] = {}
        """By broker (name, incarnation) from which the session was adopted: its state there."""
        self.stored = False
        self._came = Brought()
        """Publications that came with the session, or a branch of it. The mesh may bring them again until
        `_came_until`, in seconds on the hub's clock."""
        self._came_until = 0.0
        self._journal = journal
        self.number = number or journal.number()
        """Identifies the session in the journal, for as long as it stays at this broker."""
        self._copies = Copies(journal, self.number)
        self._row = bool(number)
        """Whether the journal has a row of the session."""

    def persist(self) -> None:
        """Store the session if it has an expiry interval, and its will in any case."""
        lasting = self.lasting
        if lasting != self.stored:
            if lasting:
                self._open_books()
            else:
                self._forget()
        if lasting or (self._journal.disk and self.will is not None and not self.closed):
            self._row = True
            self._journal.put(Table.SESSIONS, self.number, self._described())
        elif self._row:
            self._row = False
            self._journal.drop(Table.SESSIONS, self.number)

    def _described(self) -> tuple[object, ...]:
        epoch, will = self._journal.epoch, self.will
        away = self.connection is None and self.ends_at < inf  # inf: it moves to another broker
        return (
            self.number,
            self.client_id,
            self.user,
            self.expiry,
            self.ends_at + epoch if away else None,
            None if will is None else will.message,
            0 if will is None else will.delay,
            will.due + epoch if away and will is not None else None,
            self.birth,
        )

    @property
    def lasting(self) -> bool:
        """Whether the session outlives its connection."""
        return self.expiry > 0 and not self.closed

    @property
    def over(self) -> dict[Origin, None]:
        """The last publications that the client has, or will never get; oldest first."""
        return self._copies.over

    @property
    def had(self) -> dict[Origin, None]:
        """`over` and `pending`."""
        return self.over | self.pending

    @property
    def pending(self) -> dict[Origin, None]:
        """The publications in flight and waiting."""
        inflight = self.window.inflight
        sent = inflight.origins if isinstance(inflight, JournaledInflight) else ()
        return dict.fromkeys(sent) | dict.fromkeys(self.queue.origins)

    @property
    def past(self) -> list[bytes]:
        """The publications of `over`, and perhaps some before them, as `saps.storage.past.pack` returns them."""
        return self._copies.past

    def among(self, asked: Asked) -> set[Origin]:
        """Return those of `past` and `pending` that are asked for."""
        return self._copies.among(asked) | {origin for origin in self.pending if origin in asked}

    @property
    def unbroken(self) -> list[bytes]:
        """The publications of `past` since which none is forgotten, as `saps.storage.past.pack` returns them."""
        return self._copies.unbroken

    @property
    def remembers(self) -> int:
        """Number of publications in `past`."""
        return self._copies.count

    def came_lately(self, origin: Origin | None) -> bool:
        """Return whether another broker's session has brought a publication in the last `MADE_UP` seconds."""
        return self._came_until >= self.hub.clock() and origin in self._came

    @property
    def repaired(self) -> frozenset[Origin]:
        """The session's publications in a repaired file. If the session goes on elsewhere, it has or had them there."""
        return self._copies.repaired

    @repaired.setter
    def repaired(self, had: frozenset[Origin]) -> None:
        self._copies.repaired = had

    def remember(self, packed: Iterable[bytes]) -> None:
        """Add publications that the session had elsewhere to `over`, as older ones than those here. `packed`: as
        `saps.storage.past.pack` returns them; raises `ValueError` for anything else."""
        self._copies.remember(packed)
        if self.stored:
            self._keep_had()

    def came(self, origins: Iterable[Origin], packed: Iterable[bytes] = ()) -> None:
        """Drop copies of these publications for `MADE_UP` seconds, as another broker's session has brought them."""
        self._came.add(origins)
        self._came.join(packed)
        self._came_until = self.hub.clock() + MADE_UP

    def deliver(self, batch: Batch, target: Target) -> None:
        if self._came and batch.qos and not batch.replayed and batch.share is None:
            if self._came_until < self.hub.clock():
                self._came.clear()
            fresh = [index for index, single in enumerate(batch.singles) if single.origin not in self._came]
            if len(fresh) < len(batch):
                hit("came with the session, and by the mesh")
                batch = batch.select(fresh)
            if not fresh:
                return
        super().deliver(batch, target)

    def rows(self) -> Iterator[Change]:
        """Yield all rows of the session, for a broker that has had none of its changes so far. Unlike in the journal,
        `Table.HAD` has all that the client has got by now."""
        if not self.stored:
            return
        number = self.number
        yield Table.SESSIONS, number, self._described()
        for topic_filter, subscription in self.subscriptions.items():
            yield Table.SUBSCRIPTIONS, (number, topic_filter), (number, topic_filter, subscription)
        for book in (self.window.inflight, self.queue, self.incoming):
            if isinstance(book, JournaledInflight | MessageQueue | JournaledIncoming):
                yield from book.rows()
        if past := self.past:
            yield Table.HAD, number, (number, past)

    def _keep_had(self) -> None:
        if past := self.past:
            self._journal.put(Table.HAD, self.number, (self.number, past))

    def _open_books(self) -> None:
        assert not self.window.inflight, "a session that was not to last is over by now"
        self.stored = True
        self.queue.store(self._copies)
        self.window.inflight = JournaledInflight(self._copies)
        self.incoming = JournaledIncoming(self._copies)
        self._keep_had()

    def _forget(self) -> None:
        """Delete the session from the journal; it goes on in memory."""
        self.stored = False
        self._journal.drop(Table.HAD, self.number)
        for topic_filter in self.subscriptions:
            self._journal.drop(Table.SUBSCRIPTIONS, (self.number, topic_filter))
        inflight, incoming = dict(self.window.inflight), dict(self.incoming or ())
        for book in (self.window.inflight, self.incoming):
            if isinstance(book, JournaledInflight | JournaledIncoming):
                book.forget()
        self.queue.forget()
        self.window.inflight, self.incoming = inflight, incoming

    # ---- what changes

    def subscribe(self, subscription: Subscription, done: Callable[[], None] = _ignore) -> None:
        if self.stored:
            key = self.number, subscription.filter
            self._journal.put(Table.SUBSCRIPTIONS, key, (*key, subscription))
        super().subscribe(subscription, done)

    def unsubscribe(self, topic_filter: str) -> bool:
        if self.stored and topic_filter in self.subscriptions:
            self._journal.drop(Table.SUBSCRIPTIONS, (self.number, topic_filter))
        return super().unsubscribe(topic_filter)

    def adopt(self, inflight: dict[int, Copy | None], incoming: dict[int, int], waiting: list[Copy]) -> None:
        super().adopt(inflight, incoming, waiting)
        for topic_filter, subscription in self.subscriptions.items() if self.stored else ():
            key = self.number, topic_filter
            self._journal.put(Table.SUBSCRIPTIONS, key, (*key, subscription))

    def hand_off(self) -> None:
        if self.stored:
            self._forget()
        super().hand_off()

    def close(self) -> None:
        if self.stored:
            self._forget()
        super().close()
        self.persist()

    # ---- coming back

    def load(self, saved: SavedSession, batch_of: Callable[[SavedCopy], Batch], now: float) -> None:
        """Restore the stored state; the client is away. `now` is on the frontend's clock."""
        epoch = self._journal.epoch
        self.user, self.expiry = saved.user, saved.expiry
        self.ends_at = saved.ends - epoch if saved.ends is not None else now + saved.expiry
        if saved.will is not None:
            due = now + min(saved.will_delay, saved.expiry) if saved.will_due is None else saved.will_due - epoch
            self.will = LastWill(saved.will, saved.will_delay, due)
        if not saved.expiry:
            return
        self._copies.remember(saved.had)
        self._open_books()
        for subscription in saved.subscriptions:
            self.resubscribe(subscription)
        self._load_copies(saved, batch_of, now)

    def _load_copies(self, saved: SavedSession, batch_of: Callable[[SavedCopy], Batch], now: float) -> None:
        inflight, incoming = self.window.inflight, self.incoming
        assert isinstance(inflight, JournaledInflight)
        assert isinstance(incoming, JournaledIncoming)
        for copy in saved.copies:
            single, form = batch_of(copy), Form(copy.form.qos, copy.form.retain, copy.form.identifiers)
            stored: Stored = single.encoded[Stored]
            stored.references += 1
            entry = Entry(copy.serial, stored)
            if copy.packet_id:
                inflight.load(copy.packet_id, (single, form), entry)
                self.window.next_id = following(copy.packet_id)
            elif single.expired(now):
                self.dropped += 1
                self._copies.remove(entry)
            else:
                self.queue.append((single, form), entry)
        for serial, packet_id in saved.releases:
            inflight.load(packet_id, None, serial)
        for packet_id, reached in saved.incoming.items():
            incoming.load(packet_id, reached if reached >= 0 else HALF_DONE)


class Incarnation(NamedTuple):
    """The incarnation of a publishing broker, as publications name it."""

    name: str
    incarnation: int


def mark(single: Batch, origin: Origin) -> None:
    """Mark a batch of one publication as the publication `origin`."""
    single.publisher, single.seqs = Incarnation(origin.broker, origin.incarnation), (origin.seq,)
