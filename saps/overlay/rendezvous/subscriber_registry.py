"""The subscribers' side of the rendezvous: one registration for each filter this broker has subscribers for.

A registration puts the filter's key into the overlay and *then* announces it to the publishers whose topics it may
match. A publisher puts its presence key in and *then* collects the filters
(`saps.overlay.rendezvous.publisher_registry`). So whichever of
the two is linked second sees the other, and when the announcement is complete every later publication arrives.

One call announces many filters: all that wait at that moment and concern the same part of the ring. Registrations are
worked on in slices (`saps.overlay.slices`), so many at once cost others little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from saps.local.subscriptions import FilterNode
from saps.overlay.frames.calls import Announce, Announced, Baseline, Collect, Interest, Record, Stored
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Call, Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, Key, Range, filter_key, publishers, subtree
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.slices import Slices
from saps.topics import is_wildcard, literal_prefix, matches, shared

CALLS = 32
"""Announcements under way at which the next ones wait, and so become fewer and larger. More repeat more at the same
time while a crash is repaired, fewer cost throughput where brokers are far apart."""
GATHERED = 256
"""Filters that wait to be announced at which no more keys are put in before: the more, the fewer calls."""
CALL_BYTES = 1 << 16
"""Characters of filters at which an announcement takes no more."""

Done = Callable[[], None]
Origin = tuple[str, int]
"""A publishing broker: name and incarnation."""


class Registration:
    """One filter. `wanted` is what the broker asked for last, `ready` what the mesh knows."""

    __slots__ = (
        "announcement",
        "audience",
        "busy",
        "key",
        "ready",
        "since",
        "stale",
        "told",
        "topic_filter",
        "version",
        "waiters",
        "wanted",
    )

    def __init__(self, topic_filter: str, key: Key, since: float) -> None:
        self.topic_filter = topic_filter
        self.key = key
        self.since = since
        """When it was wanted."""
        self.audience = audience(topic_filter)
        self.wanted = True
        self.ready = False
        self.busy = False
        self.announcement: Announcement | None = None
        """What is under way, and says that there is a subscriber."""
        self.stale = False
        """Must be announced again."""
        self.version = 0
        self.waiters: list[Done] = []
        self.told: list[Record] = []
        """Retained messages that publishers have told of and have not finished to keep."""


class Announcement:
    """A call for several filters."""

    __slots__ = ("call", "registrations")

    def __init__(self, registrations: list[Registration]) -> None:
        self.registrations = registrations
        self.call: Call | None = None


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
        self._slices = Slices(port, self._work)
        self._due: deque[Registration] = deque()
        """Those whose key is to be put in or taken out."""
        self._linked: dict[tuple[Range, bool], deque[Registration]] = {}
        """Those whose key is in (True) or out (False), which nobody has been told yet: by who is to be told."""
        self._unannounced = 0
        """How many they are."""
        self._announcing: set[Announcement] = set()
        self.registrations: dict[str, Registration] = {}
        self._wild = FilterNode()
        """Those with wildcards, but for the shared ones: nothing is published to these."""
        self._announced_to = Baselines()
        """What publishers have answered to announcements."""
        self._collected_by = Baselines()
        """What those have said that began to publish after the announcement."""
        self.on_change: list[Callable[[str, bool], None]] = []
        """Called when a filter is ready (True), and when it has been withdrawn."""

    def subscribe(self, topic_filter: str, done: Done) -> None:
        """`done` runs once every message published from then on arrives."""
        registration = self.registrations.get(topic_filter)
        if registration is None:
            key = filter_key(topic_filter, self._port.me, self._port.order)
            registration = self.registrations[topic_filter] = Registration(topic_filter, key, self._port.now)
            if _is_wild(topic_filter):
                self._wild.insert(topic_filter.split("/"), registration)
        elif not registration.wanted:
            registration.since = self._port.now
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
        if registration.announcement is not None:
            self._cancel(registration.announcement)
        self._advance(registration)

    def _cancel(self, announcement: Announcement) -> None:
        """One of its filters is not wanted any more: without any it is not worth repeating."""
        if announcement.call is not None and not any(each.wanted for each in announcement.registrations):
            self._calls.cancel(announcement.call)

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
        if not registration.wanted or not registration.ready or registration.stale:
            registration.busy = True
            self._due.append(registration)
            self._slices.wake()

    def _work(self, most: int) -> int:
        """One slice: announce filters whose keys are where they belong, once they are enough, and see to other keys."""
        announced = 0 if self._due and self._unannounced < GATHERED else self._announce_linked(most)
        begun = min(most - announced, len(self._due))
        for _ in range(begun):
            self._begin(self._due.popleft())
        return announced + begun

    def _begin(self, registration: Registration) -> None:
        """Put the key in, or take it out."""
        present = registration.wanted
        if not present or not registration.ready:
            self._versions += 1
            registration.version = self._versions
        registration.stale = False

        def linked() -> None:
            if present and not registration.wanted:  # it was withdrawn before its key was in
                self._announced(registration, present, [])
                return
            self._linked.setdefault((registration.audience, present), deque()).append(registration)
            self._unannounced += 1
            self._slices.wake()

        (self._graph.insert if present else self._graph.remove)(registration.key, linked)

    def _announce_linked(self, most: int) -> int:
        """Announce some of the filters that wait for it, in one call for all with the same audience. Returns how many
        they are."""
        count = 0
        while self._linked and count < most and len(self._announcing) < CALLS:
            (where, present), waiting = next(iter(self._linked.items()))
            registrations: list[Registration] = []
            size = 0
            while waiting and len(registrations) < most and size < CALL_BYTES:
                registrations.append(waiting.popleft())
                size += len(registrations[-1].topic_filter)
            if not waiting:
                del self._linked[where, present]
            self._unannounced -= len(registrations)
            self._announce(where, present, registrations)
            count += len(registrations)
        return count

    def _announce(self, where: Range, present: bool, registrations: list[Registration]) -> None:
        announcement = Announcement(registrations)
        if present:
            for registration in registrations:
                registration.announcement = announcement
        self._announcing.add(announcement)

        def told(outcome: Outcome) -> None:
            self._announcing.discard(announcement)
            self._told(registrations, present, outcome)
            self._slices.wake()

        filters = [Announced(registration.topic_filter, registration.version) for registration in registrations]
        announcement.call = self._calls.call(where, Announce(filters, self._port.me, present), told)

    def _told(self, registrations: list[Registration], present: bool, outcome: Outcome) -> None:
        """All that an announcement concerns have answered, or it was not worth repeating any more."""
        records: list[Record] = []
        for result in outcome.results if present else ():
            if isinstance(result, Baseline):
                origin = result.broker, result.incarnation
                for registration, seq in zip(registrations, result.seqs, strict=False):
                    if seq is not None:
                        self._announced_to.set(registration.topic_filter, origin, seq)
            elif isinstance(result, Stored):
                records += result.records
        for registration in registrations:
            told = [record for record in records if matches(registration.topic_filter, record.message.topic)]
            self._announced(registration, present, told)

    def _announced(self, registration: Registration, present: bool, told: list[Record]) -> None:
        registration.busy = False
        registration.announcement = None
        registration.told = told
        if present == registration.wanted:
            registration.ready = present
            waiters, registration.waiters = registration.waiters, []
            if not present:
                self._drop(registration.topic_filter)
            for changed in self.on_change:
                changed(registration.topic_filter, present)
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
