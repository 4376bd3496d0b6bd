"""The subscribers' side of the rendezvous: a registration for each filter that this broker has subscribers for.

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

from saps.overlay.frames.calls import Announce, Announced, Baseline, Collect, Interest, Record, Stored
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Call, Outcome, RangeCalls
from saps.overlay.ring.keys import ALL_BROKERS, Key, Range, filter_key, publishers, subtree
from saps.overlay.ring.skip_graph import SkipGraph
from saps.overlay.slices import Slices
from saps.routing.subscriptions import FilterNode
from saps.topics import is_wildcard, literal_prefix, matches, shared

CALLS = 32
"""Most announcements under way; further ones wait, and thus become fewer and larger. A higher limit repeats more calls
at once while a crash is repaired, a lower one costs throughput where brokers are far apart."""
GATHERED = 256
"""Number of filters waiting for their announcement at which no more keys are inserted before it: the higher, the fewer
calls."""
CALL_BYTES = 1 << 16
"""Characters of filters at which an announcement is full."""

Done = Callable[[], None]
Origin = tuple[str, int]
"""A publishing broker: name and incarnation."""


class Registration:
    """The registration of a filter. `wanted` is what the broker asked for last, `ready` what the mesh knows."""

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
        """When the filter was subscribed."""
        self.audience = audience(topic_filter)
        self.wanted = True
        self.ready = False
        self.busy = False
        self.announcement: Announcement | None = None
        """The pending announcement that there is a subscriber."""
        self.stale = False
        """Whether it must be announced again."""
        self.version = 0
        self.waiters: list[Done] = []
        self.told: list[Record] = []
        """Retained messages that publishers have reported and that are not stored in the mesh yet."""


class Announcement:
    """A call for several filters."""

    __slots__ = ("call", "registrations")

    def __init__(self, registrations: list[Registration]) -> None:
        self.registrations = registrations
        self.call: Call | None = None


class Baselines:
    """For each filter and publishing broker the sequence number after which that broker sends matching publications.
    Dropping all entries of a filter or broker takes time in proportion to their number."""

    def __init__(self) -> None:
        self._of: dict[Origin, dict[str, int]] = {}
        self._origins: dict[str, tuple[Origin, ...]] = {}

    def get(self, topic_filter: str, origin: Origin) -> int | None:
        """Return the number that an origin has given for a filter, or None."""
        known = self._of.get(origin)
        return None if known is None else known.get(topic_filter)

    def set(self, topic_filter: str, origin: Origin, seq: int) -> None:
        """Store the number that an origin has given for a filter."""
        known = self._of.setdefault(origin, {})
        if topic_filter not in known:
            self._origins[topic_filter] = (*self._origins.get(topic_filter, ()), origin)
        known[topic_filter] = seq

    def drop(self, topic_filter: str) -> None:
        """Forget a filter that is no longer registered."""
        for origin in self._origins.pop(topic_filter, ()):
            known = self._of[origin]
            del known[topic_filter]
            if not known:
                del self._of[origin]

    def forget(self, origin: Origin) -> None:
        """Forget an origin that is gone."""
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
        """Registrations whose key has to be inserted or removed."""
        self._linked: dict[tuple[Range, bool], deque[Registration]] = {}
        """By audience: registrations whose key is inserted (True) or removed (False) and that are not announced yet."""
        self._unannounced = 0
        """The number of registrations in `_linked`."""
        self._announcing: set[Announcement] = set()
        self.registrations: dict[str, Registration] = {}
        self._wild = FilterNode()
        """A trie of the registrations with wildcards, except shared ones."""
        self._announced_to = Baselines()
        """Numbers from the publishers' answers to announcements."""
        self._collected_by = Baselines()
        """Numbers from publishers that began after the announcement, which they send when they collect."""
        self.on_change: list[Callable[[str, bool], None]] = []
        """Listeners, called when a filter is ready (True) and when it has been withdrawn."""

    def subscribe(self, topic_filter: str, done: Done) -> None:
        """Register a filter. `done` runs when every message published from then on will arrive."""
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
        """Stop repeating an announcement if none of its filters is wanted any more."""
        if announcement.call is not None and not any(each.wanted for each in announcement.registrations):
            self._calls.cancel(announcement.call)

    def announce_again(self) -> None:
        """Announce all filters again: a publisher may have forgotten this broker."""
        for registration in list(self.registrations.values()):
            if registration.ready:
                registration.stale = True
                self._advance(registration)

    def announce_key_again(self, key: Key) -> None:
        """Announce the filter of a key again that was out of the ring for a while."""
        registration = self.registrations.get(key.topic_filter) if key.is_topic else None
        if registration is not None and registration.key == key and registration.ready:
            registration.stale = True
            self._advance(registration)

    def interests(self, keys: list[Key], by: Collect) -> list[Interest]:
        """Return the filters at some of this broker's keys (answers `Collect`)."""
        found = []
        for key in keys:
            registration = self.registrations.get(key.topic_filter) if key.is_topic else None
            if registration is not None and registration.key == key and registration.wanted:
                found.append(Interest(registration.topic_filter, self._port.me, registration.version))
                if by.broker and self._collected_by.get(registration.topic_filter, (by.broker, by.incarnation)) is None:
                    self._collected_by.set(registration.topic_filter, (by.broker, by.incarnation), by.seq)
        return found

    def wants(self, topic: str) -> bool:
        """Return whether any filter of this broker matches a topic."""
        return bool(self._matching(topic))

    def baseline(self, topic: str, origin: Origin) -> int | None:
        """Return the sequence number after which `origin` owes this broker its publications to a topic; None if no
        matching registration is ready."""
        known = self._announced_to
        owed = [known.get(found.topic_filter, origin) or 0 for found in self._matching(topic) if found.ready]
        return min(owed, default=None)

    def owed_above(self, topic_filters: list[str], origin: Origin, *, surely: bool) -> int | None:
        """Return the sequence number after which `origin` owes this broker all its publications that match these
        filters; None if some filter is not ready, or, with `surely`, if `origin` has not heard of it."""
        if not all(self.ready(topic_filter) for topic_filter in topic_filters):
            return None
        promise = self._promise if surely else self._announced_to.get
        owed = [promise(topic_filter, origin) for topic_filter in topic_filters]
        return None if surely and None in owed else max((seq or 0 for seq in owed), default=None)

    def _promise(self, topic_filter: str, origin: Origin) -> int | None:
        """Return the sequence number after which `origin`, which has heard of a filter, sends this broker what matches
        it; None if it has not heard of it."""
        since = self._announced_to.get(topic_filter, origin)
        return self._collected_by.get(topic_filter, origin) if since is None else since

    def _matching(self, topic: str) -> list[Registration]:
        found: list[Registration] = self._wild.match(topic)
        exact = self.registrations.get(topic)
        if exact is not None and shared(topic) is None:
            found.append(exact)
        return found

    def has(self, topic_filter: str) -> bool:
        """Return whether this broker has subscribers for a filter."""
        registration = self.registrations.get(topic_filter)
        return registration is not None and registration.wanted

    def ready(self, topic_filter: str) -> Registration | None:
        """Return the registration of a filter if all publishers know it, else None."""
        registration = self.registrations.get(topic_filter)
        return registration if registration is not None and registration.ready else None

    def promised(self, topic: str, origin: Origin, seq: int) -> bool:
        """Return whether `origin` has promised to send this broker its publication `seq` to `topic`."""
        for found in self._matching(topic):
            since = self._promise(found.topic_filter, origin)
            if since is not None and seq > since:
                return True
        return False

    def forget(self, name: str, incarnation: int) -> None:
        """Forget the promises of a broker that is gone."""
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
        """Do one slice of work: announce filters whose keys are in place, if there are enough of them, and insert or
        remove other keys."""
        announced = 0 if self._due and self._unannounced < GATHERED else self._announce_linked(most)
        begun = min(most - announced, len(self._due))
        for _ in range(begun):
            self._begin(self._due.popleft())
        return announced + begun

    def _begin(self, registration: Registration) -> None:
        """Insert or remove the key of a registration."""
        present = registration.wanted
        if not present or not registration.ready:
            self._versions += 1
            registration.version = self._versions
        if not present:
            self._forget_promises(registration.topic_filter)
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
        """Announce waiting filters, in one call for those with the same audience. Returns their number."""
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
        """Handle the outcome of an announcement: all its audience has answered, or it was cancelled."""
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
        if not present:  # publishers that collected meanwhile have heard of the withdrawal since
            self._forget_promises(registration.topic_filter)
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
        """Forget a filter that has been withdrawn."""
        del self.registrations[topic_filter]
        if _is_wild(topic_filter):
            self._wild.prune(topic_filter.split("/"))

    def _forget_promises(self, topic_filter: str) -> None:
        """Forget what publishers have promised for a filter that is withdrawn, though it may be subscribed again."""
        self._announced_to.drop(topic_filter)
        self._collected_by.drop(topic_filter)


def _is_wild(topic_filter: str) -> bool:
    """Return whether a filter has wildcards and is not shared."""
    return is_wildcard(topic_filter) and shared(topic_filter) is None


def audience(topic_filter: str) -> Range:
    """Return the range of the publishers whose topics a filter may match. A filter that begins with a wildcard concerns
    every broker, so its range has the brokers' own keys: one message for each broker, however many topics it publishes
    to."""
    if not is_wildcard(topic_filter):
        return publishers(topic_filter)
    prefix = literal_prefix(topic_filter)
    return ALL_BROKERS if prefix is None else subtree(prefix)
