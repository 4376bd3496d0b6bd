"""The session directory: maps each client to the broker that has its session, in `PARTITIONS` places of the overlay.

Each client belongs to a partition, and a few brokers hold the partition. Each holder has a key at the partition's
place, so one range call reaches all of them. Holders keep **leases** (client, broker, stamp). Claims add leases and
releases remove them, so repeated, late and reordered calls do no harm.

The brokers themselves are the source of their leases. A new holder takes three steps:

1. It puts its key into the overlay.
2. It tells the other holders of the partition.
3. It asks all brokers for their leases in the partition (the rendezvous of decision 010).

So no lease is lost with a holder, and no broker holds a partition that nobody asks for. A `READY` holder knows
every other holder, except one that has yet to begin step 3. So a claim that has reached all holders that a ready one
names needs to reach no others (`saps.overlay.retained.notices`, decision 065).
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
"""Number of partitions of the clients. More partitions spread the load over more brokers. Fewer gather more clients
that connect at the same time into one call."""
HOLDERS = 2
"""Number of brokers that hold each partition. If all of them crash, the next broker that asks collects the partition
anew from all brokers. Each further holder costs two frames for each CONNECT."""
HESITATION = 2.0
"""Longest hesitation in seconds of a broker that finds too few holders. Without it all such brokers would become
holders at once."""

ORPHANED = 20.0
"""Seconds for which holders keep a dead broker's leases of copied sessions. Within them a holder of the copies adopts
the sessions and claims them with the next stamp. For as long a partition is bereft (`SessionLeases.bereft`)."""


def partition_of(client: str) -> int:
    """Return the partition of a client."""
    return crc32(client.encode()) % PARTITIONS


def shelf(partition: int) -> Range:
    """Return the key range of a partition's holders."""
    path = _path(partition)
    return Range(Key(path, Role.AGENT), Key(path, Role.AGENT + 1))


def holder_key(partition: int, broker: BrokerRef, order: KeyOrder) -> Key:
    """Return the key of a broker that holds a partition."""
    return Key(_path(partition), Role.AGENT, b"", place(broker, order), broker.name)


def _path(partition: int) -> bytes:
    return b"s\0%d" % partition


class _Other(NamedTuple):
    """The last report of another broker about holding a partition."""

    broker: BrokerRef
    serial: int
    """The report's number; 0 if the broker has not reported, but has answered a call as a holder."""
    holds: bool


class _Partition(Bucket):
    """A partition held here: its leases and its other holders."""

    __slots__ = ("bereft_until", "entries", "others")

    def __init__(self, number: int, key: Key) -> None:
        super().__init__(number, key)
        self.bereft_until = 0.0
        self.entries: dict[str, list[SessionLease]] = {}
        """The leases by client; rarely more than one each."""
        self.others: dict[str, _Other] = {}
        """Other brokers that hold the partition or have held it, by name."""

    def note(self, broker: BrokerRef, serial: int, holds: bool) -> None:
        """Record that another broker holds the partition, or no longer does; ignore a report older than the last."""
        known = self.others.get(broker.name)
        if known is None or (known.broker.incarnation, known.serial) < (broker.incarnation, serial):
            self.others[broker.name] = _Other(broker, serial, holds)

    def add(self, lease: SessionLease) -> None:
        """Add a lease. It replaces an older lease of the same broker.

        A kept lease of an earlier incarnation stays, since its session has copies and may still be adopted."""
        known = self.entries.get(lease.client)
        if known is None:
            self.entries[lease.client] = [lease]
            return
        for number, other in enumerate(known):
            if other.broker == lease.broker or (other.broker.name == lease.broker.name and not other.kept):
                if _incarnation(other) <= _incarnation(lease):
                    known[number] = lease
                return
        known.append(lease)

    def remove(self, client: str, gone: Callable[[SessionLease], bool]) -> None:
        """Remove the client's leases for which `gone` returns True."""
        known = self.entries.get(client)
        if known is not None:
            left = [lease for lease in known if not gone(lease)]
            if left:
                self.entries[client] = left
            else:
                del self.entries[client]


def _incarnation(lease: SessionLease) -> tuple[int, int]:
    return lease.broker.incarnation, lease.stamp


class Directory(Holder[_Partition]):
    """The partitions that one broker holds."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls) -> None:
        super().__init__(port, graph, calls)
        self._serial = 0
        """The number of this broker's last report about holding a partition."""
        self._lost_at = -ORPHANED
        """Time of the last death of a broker."""
        self._short: set[int] = set()
        """Partitions found to have too few holders, for which this broker hesitates."""

    def __len__(self) -> int:
        """Return the number of clients with a lease here."""
        return sum(len(partition.entries) for partition in self._held.values())

    def run(self, body: Claim, keys: Iterable[Key]) -> list[SessionLeases]:
        """Handle a `Claim` that was routed to these keys: apply its releases and claims to the partition held here.

        Return other brokers' leases of the claimed clients, whether the partition is ready, and its other holders.
        Return an empty list if the partition is not held here or its key is not among `keys`."""
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
            # An heir claims with the next stamp after the dead owner's lease, which it replaces.
            partition.remove(client, lambda t, stamp=stamp: t.stamp + 1 == stamp and self._port.lost(t.broker))  # type: ignore[misc]
            others += [t for t in partition.entries.get(client, ()) if t.broker != body.broker]
            partition.add(SessionLease(client, body.broker, stamp, client in kept))
        holders = [o.broker for o in partition.others.values() if o.holds and not self._port.lost(o.broker)]
        bereft = self._port.now < partition.bereft_until
        return [SessionLeases(me, partition.state is State.READY, others, holders, bereft)]

    def _empty(self, number: int) -> _Partition:
        return _Partition(number, holder_key(number, self._port.me, self._port.order))

    def key_again(self, key: Key) -> None:
        """Collect the partition of a key again that was out of the ring for a while, but leave a ready partition ready.

        Direct claims have reached this holder all the time, and no range call that missed it was complete. So claims
        need not wait for the repair of the ring."""
        for partition in self._held.values():
            if partition.key == key and partition.state is State.READY:
                self._begin(partition)
            elif partition.key == key:
                self._start_again(partition)

    def _begin(self, partition: _Partition) -> None:
        """Report to the other holders, and learn who they are, before the partition is collected.

        A claim answered before they knew of this holder is then already there to be collected."""

        def told(outcome: Outcome) -> None:
            results = [result for result in outcome.results if isinstance(result, SessionLeases)]
            others = [result for result in results if result.broker.name != self._port.me.name]
            for result in others:
                partition.note(result.broker, 0, True)
            unknown = partition.state is not State.READY and not any(result.ready for result in others)
            if unknown and outcome.complete and self._port.now - self._lost_at < ORPHANED:
                partition.bereft_until = self._port.now + ORPHANED
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
        """Keep the number of holders of a partition near `HOLDERS`.

        `answered` names the holders that have answered a call of this broker, `ready` those that have the whole
        partition. If there are too few for a while, this broker becomes a holder. If there are too many, it stops
        holding the partition, unless it ranks among the first `HOLDERS`."""
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
        """Count the holders again, and become one if they are still too few."""

        def counted(outcome: Outcome) -> None:
            self._short.discard(number)
            answered = {result.broker.name for result in outcome.results if isinstance(result, SessionLeases)}
            if len(answered) < HOLDERS:
                self.join(number)

        self._calls.call(shelf(number), Claim(number, self._port.me, [], []), counted, 1)

    def _hesitation(self, number: int) -> float:
        """Return the seconds for which this broker lets others become a holder; each broker has its own turn."""
        return HESITATION * int.from_bytes(rank(number, self._port.me.name)) / (1 << 64)

    # --- what happens to brokers ------------------------------------------------------------------------------------

    def forget(self, broker: BrokerRef) -> None:
        """Remove the leases of a broker that has died or left.

        Leases of copied sessions stay for `ORPHANED` seconds, until an heir has adopted the sessions."""
        self._lost_at = self._port.now
        self._remove(broker, False)
        self._port.after(ORPHANED, lambda: self._orphaned(broker))

    def _orphaned(self, broker: BrokerRef) -> None:
        if self._port.lost(broker):
            self._remove(broker, True)

    def _remove(self, broker: BrokerRef, kept: bool) -> None:
        for partition in self._held.values():
            for client in [c for c, known in partition.entries.items() if any(t.broker == broker for t in known)]:
                partition.remove(client, lambda lease: lease.broker == broker and kept >= lease.kept)
