"""Which broker has the session of a client: an index over the brokers, spread over `BUCKETS` places of the overlay.

Each client falls into a bucket, and a few brokers hold the bucket: each has a key at its place, so one range call
reaches them. What they hold are **tenures** (client, broker, stamp), a set that only grows by claims and shrinks by
releases, so repeated, late and reordered calls do no harm. The brokers themselves know best whose sessions they have:
one that begins to hold a bucket puts its key in and *then* asks all brokers for their tenures in it (the rendezvous of
decision 010), so nothing is lost with a holder, and nobody holds what nobody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

from saps.overlay.frames import Claim, Result, Roster, Tenure, Tenures
from saps.overlay.holding import Bucket, Holder, State, rank
from saps.overlay.keys import ALL_BROKERS, BrokerRef, Key, Range, Role, place

BUCKETS = 16
"""Places over which the clients are spread. More spread the load over more brokers; fewer gather more clients that
connect at the same time into one call."""
HOLDERS = 3
"""Brokers that hold each bucket. If all of them crash the next one to ask collects it anew from all brokers. More cost
two frames each for each CONNECT."""


def bucket_of(client: str) -> int:
    """The bucket of a client."""
    return crc32(client.encode()) % BUCKETS


def shelf(bucket: int) -> Range:
    """The holders of a bucket."""
    path = _path(bucket)
    return Range(Key(path, Role.AGENT), Key(path, Role.AGENT + 1))


def _path(bucket: int) -> bytes:
    return b"s\0%d" % bucket


class _Bucket(Bucket):
    """The tenures of a bucket held here."""

    __slots__ = ("entries",)

    def __init__(self, number: int, key: Key) -> None:
        super().__init__(number, key)
        self.entries: dict[str, list[Tenure]] = {}
        """By client; hardly ever more than one each."""

    def add(self, tenure: Tenure) -> None:
        known = self.entries.get(tenure.client)
        if known is None:
            self.entries[tenure.client] = [tenure]
            return
        for number, other in enumerate(known):
            if other.broker.name == tenure.broker.name:
                if _life(other) <= _life(tenure):
                    known[number] = tenure
                return
        known.append(tenure)

    def remove(self, client: str, gone: Callable[[Tenure], bool]) -> None:
        known = self.entries.get(client)
        if known is not None:
            left = [tenure for tenure in known if not gone(tenure)]
            if left:
                self.entries[client] = left
            else:
                del self.entries[client]


def _life(tenure: Tenure) -> tuple[int, int]:
    return tenure.broker.incarnation, tenure.stamp


class Directory(Holder[_Bucket]):
    """The buckets one broker holds."""

    def __len__(self) -> int:
        """Clients that are known here."""
        return sum(len(bucket.entries) for bucket in self._held.values())

    def run(self, body: Claim, keys: Iterable[Key]) -> list[Tenures]:
        """What a claim does at a bucket held here: takes note of it, and tells what other brokers have."""
        bucket = self._held.get(body.bucket)
        if bucket is None or bucket.key not in keys:
            return []
        for client, stamp in body.released:
            bucket.remove(client, lambda t, stamp=stamp: t.broker == body.broker and t.stamp <= stamp)  # type: ignore[misc]
        others: list[Tenure] = []
        for client, stamp in body.claimed:
            others += [t for t in bucket.entries.get(client, ()) if t.broker.name != body.broker.name]
            bucket.add(Tenure(client, body.broker, stamp))
        return [Tenures(self._port.me, bucket.state is State.READY, others)]

    def _empty(self, number: int) -> _Bucket:
        return _Bucket(
            number, Key(_path(number), Role.AGENT, b"", place(self._port.me, self._port.order), self._port.me.name)
        )

    def _question(self, number: int) -> tuple[Range, Roster]:
        return ALL_BROKERS, Roster(number)

    def _take(self, bucket: _Bucket, result: Result) -> None:
        if isinstance(result, Tenures):
            for tenure in result.tenures:
                bucket.add(tenure)

    def balance(self, number: int, ready: set[str], answered: set[str]) -> None:
        """Of a bucket that is used here: the holders that have `answered`, and those that know it all. If they are too
        few this broker becomes one, if they are too many it may leave it to them."""
        bucket = self._held.get(number)
        me = self._port.me.name
        if len(answered) < HOLDERS and bucket is None:
            self.join(number)
        elif len(ready) > HOLDERS and bucket is not None and bucket.state is State.READY:
            preferred = sorted(ready, key=lambda name: rank(number, name))[:HOLDERS]
            if me not in preferred:
                self._give_up(bucket)

    # --- what happens to brokers ------------------------------------------------------------------------------------

    def forget(self, broker: BrokerRef) -> None:
        """A broker died or has left, and its sessions with it."""
        for bucket in self._held.values():
            for client in [c for c, known in bucket.entries.items() if any(t.broker == broker for t in known)]:
                bucket.remove(client, lambda tenure: tenure.broker == broker)
