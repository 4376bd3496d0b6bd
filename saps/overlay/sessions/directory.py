"""Which broker has the session of a client: an index over the brokers, spread over `PARTITIONS` places of the overlay.

Each client falls into a partition, and a few brokers hold the partition: each has a key at its place, so one range call
reaches them. What they hold are **leases** (client, broker, stamp), a set that only grows by claims and shrinks by
releases, so repeated, late and reordered calls do no harm. The brokers themselves know best whose sessions they have:
one that begins to hold a partition puts its key in and *then* asks all brokers for their leases in it (the rendezvous
of decision 010), so nothing is lost with a holder, and nobody holds what nobody asks for.

Between the two it tells the others that hold the partition that it does so, too. So one that is `READY` knows of each
other holder, unless that one is yet to ask the brokers for their leases; and who has claimed at all that a ready one
names has claimed at all (`saps.overlay.retained.notices`, decision 065).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from zlib import crc32

from saps.overlay.frames.calls import Claim, Result, Roster, SessionLease, SessionLeases
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.retained.partitions import Bucket, Holder, State, rank
from saps.overlay.ring.keys import ALL_BROKERS, BrokerRef, Key, KeyOrder, Range, Role, place
from saps.overlay.ring.skip_graph import SkipGraph

PARTITIONS = 16
"""Places over which the clients are spread. More spread the load over more brokers; fewer gather more clients that
connect at the same time into one call."""
HOLDERS = 2
"""Brokers that hold each partition. If all of them crash the next one to ask collects it anew from all brokers. More
cost two frames each for each CONNECT."""
HESITATION = 2.0
"""Seconds within which one of the brokers that find too few holders becomes one; else all of them would at once."""

ORPHANED = 20.0
"""Seconds within which the sessions of a dead broker are adopted by one that has copies, which claims them with the
next stamp. Then they are unknown."""


def partition_of(client: str) -> int:
    """The partition of a client."""
    return crc32(client.encode()) % PARTITIONS


def shelf(partition: int) -> Range:
    """The holders of a partition."""
    path = _path(partition)
    return Range(Key(path, Role.AGENT), Key(path, Role.AGENT + 1))


def holder_key(partition: int, broker: BrokerRef, order: KeyOrder) -> Key:
    """The key of a broker that holds a partition."""
    return Key(_path(partition), Role.AGENT, b"", place(broker, order), broker.name)


def _path(partition: int) -> bytes:
    return b"s\0%d" % partition


class _Other(NamedTuple):
    """What another broker has said last of holding a partition."""

    broker: BrokerRef
    serial: int
    """0: it has not said so, but answered as one that holds it."""
    holds: bool


class _Partition(Bucket):
    """The leases of a partition held here."""

    __slots__ = ("entries", "others")

    def __init__(self, number: int, key: Key) -> None:
        super().__init__(number, key)
        self.entries: dict[str, list[SessionLease]] = {}
        """By client; hardly ever more than one each."""
        self.others: dict[str, _Other] = {}
        """Who else holds it, or did, by name."""

    def note(self, broker: BrokerRef, serial: int, holds: bool) -> None:
        """Another broker holds the partition, or does not any more."""
        known = self.others.get(broker.name)
        if known is None or (known.broker.incarnation, known.serial) < (broker.incarnation, serial):
            self.others[broker.name] = _Other(broker, serial, holds)

    def add(self, lease: SessionLease) -> None:
        known = self.entries.get(lease.client)
        if known is None:
            self.entries[lease.client] = [lease]
            return
        for number, other in enumerate(known):
            if other.broker == lease.broker or (other.broker.name == lease.broker.name and not other.kept):
                if _life(other) <= _life(lease):
                    known[number] = lease
                return
        known.append(lease)

    def remove(self, client: str, gone: Callable[[SessionLease], bool]) -> None:
        known = self.entries.get(client)
        if known is not None:
            left = [lease for lease in known if not gone(lease)]
            if left:
                self.entries[client] = left
            else:
                del self.entries[client]


def _life(lease: SessionLease) -> tuple[int, int]:
    return lease.broker.incarnation, lease.stamp


class Directory(Holder[_Partition]):
    """The partitions one broker holds."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls) -> None:
        super().__init__(port, graph, calls)
        self._serial = 0
        """Of what this broker has told of holding partitions."""
        self._short: set[int] = set()
        """Partitions that have been found to have too few holders."""

    def __len__(self) -> int:
        """Clients that are known here."""
        return sum(len(partition.entries) for partition in self._held.values())

    def run(self, body: Claim, keys: Iterable[Key]) -> list[SessionLeases]:
        """What a claim does at a partition held here: takes note of it, and tells what other brokers have."""
        partition, me = self._held.get(body.partition), self._port.me
        if partition is None or partition.key not in keys:
            return []
        if body.serial and body.broker.name != me.name:
            partition.note(body.broker, body.serial, body.holds)
        for client, stamp in body.released:
            partition.remove(client, lambda t, stamp=stamp: t.broker == body.broker and t.stamp <= stamp)  # type: ignore[misc]
        others: list[SessionLease] = []
        kept = set(body.kept)
        for client, stamp in body.claimed:
            partition.remove(client, lambda t, stamp=stamp: t.stamp + 1 == stamp and self._port.lost(t.broker))  # type: ignore[misc]
            others += [t for t in partition.entries.get(client, ()) if t.broker != body.broker]
            partition.add(SessionLease(client, body.broker, stamp, client in kept))
        holders = [o.broker for o in partition.others.values() if o.holds and not self._port.lost(o.broker)]
        return [SessionLeases(me, partition.state is State.READY, others, holders)]

    def _empty(self, number: int) -> _Partition:
        return _Partition(number, holder_key(number, self._port.me, self._port.order))

    def key_again(self, key: Key) -> None:
        """As for any holder, but the partition stays ready: it has got what went straight to it, and none of the range
        calls that have missed it was complete. So claims need not wait until what caused it is repaired."""
        for partition in self._held.values():
            if partition.key == key and partition.state is State.READY:
                self._begin(partition)
            elif partition.key == key:
                self._start_again(partition)

    def _begin(self, partition: _Partition) -> None:
        """Tell the other holders, and get to know them, before anything is collected: a claim that is answered before
        they have heard of this one is there to be collected."""

        def told(outcome: Outcome) -> None:
            for result in outcome.results:
                if isinstance(result, SessionLeases) and result.broker.name != self._port.me.name:
                    partition.note(result.broker, 0, True)
            self._collect(partition)

        self._tell(partition.number, True, told)

    def _tell(self, number: int, holds: bool, told: Callable[[Outcome], None]) -> None:
        self._serial += 1
        self._calls.call(shelf(number), Claim(number, self._port.me, [], [], self._serial, holds), told)

    def _dropped(self, partition: _Partition) -> None:
        self._tell(partition.number, False, lambda outcome: None)

    def _question(self, number: int) -> tuple[Range, Roster]:
        return ALL_BROKERS, Roster(number)

    def _take(self, partition: _Partition, result: Result) -> None:
        if isinstance(result, SessionLeases):
            for lease in result.leases:
                partition.add(lease)

    def balance(self, number: int, ready: set[str], answered: set[str]) -> None:
        """Of a partition that is used here: the holders that have `answered`, and those that know it all. If they are
        too few for a while this broker becomes one, if they are too many it may leave it to them."""
        partition = self._held.get(number)
        me = self._port.me.name
        if len(answered) < HOLDERS and partition is None and number not in self._short:
            self._short.add(number)
            self._port.after(self._hesitation(number), lambda: self._count(number))
        elif len(ready) > HOLDERS and partition is not None and partition.state is State.READY:
            preferred = sorted(ready, key=lambda name: rank(number, name))[:HOLDERS]
            if me not in preferred:
                self._give_up(partition)

    def _count(self, number: int) -> None:
        """Are the holders still too few?"""

        def counted(outcome: Outcome) -> None:
            self._short.discard(number)
            answered = {result.broker.name for result in outcome.results if isinstance(result, SessionLeases)}
            if len(answered) < HOLDERS:
                self.join(number)

        self._calls.call(shelf(number), Claim(number, self._port.me, [], []), counted, 1)

    def _hesitation(self, number: int) -> float:
        """Seconds for which this broker leaves it to others to become a holder: each has its own turn."""
        return HESITATION * int.from_bytes(rank(number, self._port.me.name)) / (1 << 64)

    # --- what happens to brokers ------------------------------------------------------------------------------------

    def forget(self, broker: BrokerRef) -> None:
        """A broker died or has left, and its sessions with it, but for those that others have copies of: these are to
        be adopted."""
        self._remove(broker, False)
        self._port.after(ORPHANED, lambda: self._orphaned(broker))

    def _orphaned(self, broker: BrokerRef) -> None:
        if self._port.lost(broker):
            self._remove(broker, True)

    def _remove(self, broker: BrokerRef, kept: bool) -> None:
        for partition in self._held.values():
            for client in [c for c, known in partition.entries.items() if any(t.broker == broker for t in known)]:
                partition.remove(client, lambda lease: lease.broker == broker and kept >= lease.kept)
