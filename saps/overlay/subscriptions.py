"""The subscribers' side of the rendezvous: one registration for each filter this broker has subscribers for.

A registration puts the filter's key into the overlay and *then* announces it to the publishers whose topics it may
match. A publisher puts its presence key in and *then* collects the filters (`saps.overlay.presence`). So whichever of
the two is linked second sees the other, and when the announcement is complete every later publication arrives.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.calls import Call, Outcome, RangeCalls
from saps.overlay.frames import Announce, Baseline, Collect, Interest, Record, Stored
from saps.overlay.keys import ALL_BROKERS, Key, Range, filter_key, publishers, subtree
from saps.overlay.port import Port
from saps.overlay.skipgraph import SkipGraph
from saps.topics import is_wildcard, literal_prefix, matches

Done = Callable[[], None]

WANTED = 65_536
"""Topics for which it is remembered whether a filter matches."""


class Registration:
    """One filter. `wanted` is what the broker asked for last, `ready` what the mesh knows."""

    __slots__ = (
        "announcing",
        "baselines",
        "busy",
        "collected",
        "key",
        "ready",
        "stale",
        "topic_filter",
        "version",
        "waiters",
        "wanted",
    )

    def __init__(self, topic_filter: str, key: Key) -> None:
        self.topic_filter = topic_filter
        self.key = key
        self.wanted = True
        self.ready = False
        self.busy = False
        self.announcing: Call | None = None
        """The announcement under way that there is a subscriber."""
        self.stale = False
        """Must be announced again."""
        self.version = 0
        self.waiters: list[Done] = []
        self.baselines: dict[tuple[str, int], int] = {}
        """From which sequence number on (exclusively) each publishing broker sends what matches."""
        self.collected: dict[tuple[str, int], int] = {}
        """The same, of brokers that began to publish after the announcement."""


class Subscriptions:
    """All registrations of one broker."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._versions = 0
        self.registrations: dict[str, Registration] = {}
        self._wanted: dict[str, bool] = {}
        """Answers of `wants`, while the registrations stay as they are."""
        self.on_change: Callable[[str, bool], None] | None = None
        """Called when a filter is ready (True), and when it has been withdrawn."""
        self.on_told: Callable[[str, list[Record]], None] | None = None
        """Called, before a filter is ready, with the retained messages that publishers told beside their baselines."""

    def subscribe(self, topic_filter: str, done: Done) -> None:
        """`done` runs once every message published from then on arrives."""
        registration = self.registrations.get(topic_filter)
        if registration is None:
            key = filter_key(topic_filter, self._port.me, self._port.order)
            registration = self.registrations[topic_filter] = Registration(topic_filter, key)
            self._wanted.clear()
        registration.wanted = True
        if registration.ready:
            done()
        else:
            registration.waiters.append(done)
            self._advance(registration)

    def unsubscribe(self, topic_filter: str, done: Done | None = None) -> None:
        registration = self.registrations.get(topic_filter)
        if registration is None:
            if done is not None:
                done()
            return
        registration.wanted = False
        registration.ready = False
        waiters, registration.waiters = registration.waiters, [done] if done is not None else []
        for waiter in waiters:
            waiter()
        if registration.announcing is not None:
            self._calls.cancel(registration.announcing)
        self._advance(registration)

    def announce_again(self) -> None:
        """Tell every publisher once more: someone may have forgotten this broker."""
        for registration in list(self.registrations.values()):
            if registration.ready:
                registration.stale = True
                self._advance(registration)

    def announce_key_again(self, key: Key) -> None:
        """The key was out of the ring for a while."""
        registration = self.registrations.get(key.topic_filter) if key.is_topic else None
        if registration is not None and registration.key == key and registration.ready:
            registration.stale = True
            self._advance(registration)

    def interests(self, keys: list[Key], by: Collect) -> list[Interest]:
        """The filters at some of this broker's keys (answers `Collect`)."""
        found = []
        for key in keys:
            registration = self.registrations.get(key.topic_filter) if key.is_topic else None
            if registration is not None and registration.key == key and registration.wanted:
                found.append(Interest(registration.topic_filter, self._port.me, registration.version))
                if by.broker:
                    registration.collected.setdefault((by.broker, by.incarnation), by.seq)
        return found

    def wants(self, topic: str) -> bool:
        """Does any filter of this broker match?"""
        wanted = self._wanted.get(topic)
        if wanted is None:
            if len(self._wanted) >= WANTED:
                self._wanted.clear()
            wanted = self._wanted[topic] = any(matches(topic_filter, topic) for topic_filter in self.registrations)
        return wanted

    def baseline(self, topic: str, origin: tuple[str, int]) -> int | None:
        """From which sequence number on `origin` owes this broker what it publishes to `topic`; None: it owes nothing
        yet, because no registration that matches is ready."""
        owed: int | None = None
        for registration in self.registrations.values():
            if registration.ready and matches(registration.topic_filter, topic):
                since = registration.baselines.get(origin, 0)
                owed = since if owed is None else min(owed, since)
        return owed

    def has(self, topic_filter: str) -> bool:
        """Has this broker subscribers for the filter?"""
        registration = self.registrations.get(topic_filter)
        return registration is not None and registration.wanted

    def ready(self, topic_filter: str) -> Registration | None:
        """The registration of a filter that all publishers have taken up."""
        registration = self.registrations.get(topic_filter)
        return registration if registration is not None and registration.ready else None

    def promised(self, topic: str, origin: tuple[str, int], seq: int) -> bool:
        """Has `origin` said that it sends this broker its publication `seq` to `topic`?"""
        for registration in self.registrations.values():
            since = registration.baselines.get(origin, registration.collected.get(origin))
            if since is not None and seq > since and matches(registration.topic_filter, topic):
                return True
        return False

    def forget(self, name: str, incarnation: int) -> None:
        for registration in self.registrations.values():
            registration.baselines.pop((name, incarnation), None)
            registration.collected.pop((name, incarnation), None)

    # --- one step at a time, per filter ---------------------------------------------------------------------

    def _advance(self, registration: Registration) -> None:
        if registration.busy:
            return
        if registration.wanted and (not registration.ready or registration.stale):
            registration.busy = True
            registration.stale = False
            if not registration.ready:
                self._versions += 1
                registration.version = self._versions
            self._graph.insert(registration.key, lambda: self._announce(registration, True))
        elif not registration.wanted:
            registration.busy = True
            self._versions += 1
            registration.version = self._versions
            self._graph.remove(registration.key, lambda: self._announce(registration, False))

    def _announce(self, registration: Registration, present: bool) -> None:
        body = Announce(registration.topic_filter, self._port.me, registration.version, present)
        if present and not registration.wanted:  # it was withdrawn before its key was in
            self._announced(registration, present, Outcome([], complete=False, depth=0))
            return
        call = self._calls.call(
            audience(registration.topic_filter),
            body,
            lambda outcome: self._announced(registration, present, outcome),
        )
        if present and not call.over:
            registration.announcing = call

    def _announced(self, registration: Registration, present: bool, outcome: Outcome) -> None:
        registration.busy = False
        registration.announcing = None
        if present:
            for result in outcome.results:
                if isinstance(result, Baseline):
                    registration.baselines[result.broker, result.incarnation] = result.seq
            if self.on_told is not None:
                told = [record for result in outcome.results if isinstance(result, Stored) for record in result.records]
                self.on_told(registration.topic_filter, told)
        if present == registration.wanted:
            registration.ready = present
            waiters, registration.waiters = registration.waiters, []
            if not present:
                del self.registrations[registration.topic_filter]
                self._wanted.clear()
            if self.on_change is not None:
                self.on_change(registration.topic_filter, present)
            for waiter in waiters:
                waiter()
        if registration.wanted != present or (present and registration.stale):
            self._advance(registration)


def audience(topic_filter: str) -> Range:
    """Where the publishers are whose topics a filter may match. A filter that begins with a wildcard concerns every
    broker, so it goes to the brokers' own keys: one message a broker, however many topics they publish to."""
    if not is_wildcard(topic_filter):
        return publishers(topic_filter)
    prefix = literal_prefix(topic_filter)
    return ALL_BROKERS if prefix is None else subtree(prefix)
