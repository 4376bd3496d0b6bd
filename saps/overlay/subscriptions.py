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
from saps.subscriptions import FilterNode
from saps.topics import is_wildcard, literal_prefix, shared

Done = Callable[[], None]
Origin = tuple[str, int]
"""A publishing broker: name and incarnation."""


class Registration:
    """One filter. `wanted` is what the broker asked for last, `ready` what the mesh knows."""

    __slots__ = (
        "announcing",
        "busy",
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


class Baselines:
    """From which sequence number on (exclusively) each publishing broker sends what matches a filter. What belongs to
    one filter, or to one broker, is dropped at the price of what it is."""

    def __init__(self) -> None:
        self._of: dict[Origin, dict[str, int]] = {}
        self._origins: dict[str, tuple[Origin, ...]] = {}

    def get(self, topic_filter: str, origin: Origin) -> int | None:
        """The number that the origin has given for the filter; None for none."""
        known = self._of.get(origin)
        return None if known is None else known.get(topic_filter)

    def set(self, topic_filter: str, origin: Origin, seq: int) -> None:
        """The origin has given a number for the filter."""
        known = self._of.setdefault(origin, {})
        if topic_filter not in known:
            self._origins[topic_filter] = (*self._origins.get(topic_filter, ()), origin)
        known[topic_filter] = seq

    def drop(self, topic_filter: str) -> None:
        """The filter is not registered any more."""
        for origin in self._origins.pop(topic_filter, ()):
            known = self._of[origin]
            del known[topic_filter]
            if not known:
                del self._of[origin]

    def forget(self, origin: Origin) -> None:
        """The origin is gone."""
        for topic_filter in self._of.pop(origin, ()):
            left = tuple(other for other in self._origins[topic_filter] if other != origin)
            if left:
                self._origins[topic_filter] = left
            else:
                del self._origins[topic_filter]


class Subscriptions:
    """All registrations of one broker."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._versions = 0
        self.registrations: dict[str, Registration] = {}
        self._wild = FilterNode()
        """Those with wildcards, but for the shared ones: nothing is published to these."""
        self._announced_to = Baselines()
        """What publishers have answered to announcements."""
        self._collected_by = Baselines()
        """What those have said that began to publish after the announcement."""
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
            if _is_wild(topic_filter):
                self._wild.insert(topic_filter.split("/"), registration)
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
                if by.broker and self._collected_by.get(registration.topic_filter, (by.broker, by.incarnation)) is None:
                    self._collected_by.set(registration.topic_filter, (by.broker, by.incarnation), by.seq)
        return found

    def wants(self, topic: str) -> bool:
        """Does any filter of this broker match?"""
        return bool(self._matching(topic))

    def baseline(self, topic: str, origin: Origin) -> int | None:
        """From which sequence number on `origin` owes this broker what it publishes to `topic`; None: it owes nothing
        yet, because no registration that matches is ready."""
        known = self._announced_to
        owed = [known.get(found.topic_filter, origin) or 0 for found in self._matching(topic) if found.ready]
        return min(owed, default=None)

    def _matching(self, topic: str) -> list[Registration]:
        found: list[Registration] = self._wild.match(topic)
        exact = self.registrations.get(topic)
        if exact is not None and shared(topic) is None:
            found.append(exact)
        return found

    def has(self, topic_filter: str) -> bool:
        """Has this broker subscribers for the filter?"""
        registration = self.registrations.get(topic_filter)
        return registration is not None and registration.wanted

    def ready(self, topic_filter: str) -> Registration | None:
        """The registration of a filter that all publishers have taken up."""
        registration = self.registrations.get(topic_filter)
        return registration if registration is not None and registration.ready else None

    def promised(self, topic: str, origin: Origin, seq: int) -> bool:
        """Has `origin` said that it sends this broker its publication `seq` to `topic`?"""
        for found in self._matching(topic):
            since = self._announced_to.get(found.topic_filter, origin)
            if since is None:
                since = self._collected_by.get(found.topic_filter, origin)
            if since is not None and seq > since:
                return True
        return False

    def forget(self, name: str, incarnation: int) -> None:
        """A broker has gone: what it had promised is void."""
        self._announced_to.forget((name, incarnation))
        self._collected_by.forget((name, incarnation))

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
                    origin = result.broker, result.incarnation
                    self._announced_to.set(registration.topic_filter, origin, result.seq)
            if self.on_told is not None:
                told = [record for result in outcome.results if isinstance(result, Stored) for record in result.records]
                self.on_told(registration.topic_filter, told)
        if present == registration.wanted:
            registration.ready = present
            waiters, registration.waiters = registration.waiters, []
            if not present:
                self._drop(registration.topic_filter)
            if self.on_change is not None:
                self.on_change(registration.topic_filter, present)
            for waiter in waiters:
                waiter()
        if registration.wanted != present or (present and registration.stale):
            self._advance(registration)

    def _drop(self, topic_filter: str) -> None:
        """The filter has been withdrawn."""
        del self.registrations[topic_filter]
        if _is_wild(topic_filter):
            self._wild.prune(topic_filter.split("/"))
        self._announced_to.drop(topic_filter)
        self._collected_by.drop(topic_filter)


def _is_wild(topic_filter: str) -> bool:
    """It matches more topics than that of its name."""
    return is_wildcard(topic_filter) and shared(topic_filter) is None


def audience(topic_filter: str) -> Range:
    """Where the publishers are whose topics a filter may match. A filter that begins with a wildcard concerns every
    broker, so it goes to the brokers' own keys: one message a broker, however many topics they publish to."""
    if not is_wildcard(topic_filter):
        return publishers(topic_filter)
    prefix = literal_prefix(topic_filter)
    return ALL_BROKERS if prefix is None else subtree(prefix)
