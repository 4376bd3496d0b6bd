"""Holding buckets: what many brokers look for is spread over a few places of the overlay, each with a few holders.

A holder has a key at the bucket's place, so that one range call reaches all of them. It puts the key in *first* and
then collects what belongs into the bucket: whoever comes second sees the other (decision 010), so nothing is missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from typing import Generic, TypeVar

from saps.overlay.frames.kinds import Body, Result
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import Key, Range
from saps.overlay.ring.skip_graph import SkipGraph


class State(Enum):
    JOINING = "joining"
    COLLECTING = "collecting"
    READY = "ready"
    LEAVING = "leaving"


class Bucket:
    """A bucket held here."""

    __slots__ = ("key", "missed", "number", "state", "waiters")

    def __init__(self, number: int, key: Key) -> None:
        self.number = number
        self.key = key
        self.state = State.JOINING
        self.missed = False
        """Something may have been missed while it is being collected: it must be once more."""
        self.waiters: list[Callable[[], None]] = []
        """To be told when it is ready."""


B = TypeVar("B", bound=Bucket)


def rank(bucket: int, name: str) -> bytes:
    """The order in which brokers are preferred as holders of a bucket: each bucket has its own."""
    return blake2b(b"%d\0" % bucket + name.encode(), digest_size=8).digest()


class Holder(ABC, Generic[B]):
    """The buckets that one broker holds."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._held: dict[int, B] = {}

    @property
    def buckets(self) -> list[int]:
        """The buckets held here."""
        return list(self._held)

    def join(self, number: int, done: Callable[[], None] = lambda: None) -> None:
        """Become a holder of a bucket; `done` runs once this broker has all of it."""
        bucket = self._held.get(number)
        if bucket is None or bucket.state is State.LEAVING:
            bucket = self._held[number] = self._empty(number)
            self._graph.insert(bucket.key, lambda: self._start(bucket))
        if bucket.state is State.READY:
            done()
        else:
            bucket.waiters.append(done)

    def rejoined(self) -> None:
        """This broker was cut off, or its ring was cut in two: others may hold the same buckets with other contents."""
        for bucket in self._held.values():
            self._start_again(bucket)

    def key_again(self, key: Key) -> None:
        """The key was out of the ring for a while, and missed what was said to the holders meanwhile."""
        for bucket in self._held.values():
            if bucket.key == key:
                self._start_again(bucket)

    def _start(self, bucket: B) -> None:
        """The key is in the overlay."""
        if self._held.get(bucket.number) is bucket:
            bucket.state = State.COLLECTING
            self._begin(bucket)

    def _start_again(self, bucket: B) -> None:
        if bucket.state is State.READY:
            self._start(bucket)
        elif bucket.state is State.COLLECTING:
            bucket.missed = True

    def _begin(self, bucket: B) -> None:
        """What is to be done before `_collect`."""
        self._collect(bucket)

    def _collect(self, bucket: B) -> None:
        def collected(outcome: Outcome) -> None:
            for result in outcome.results:
                self._take(bucket, result)
            if bucket.missed:
                bucket.missed = False
                self._start(bucket)
            elif bucket.state is State.COLLECTING:
                bucket.state = State.READY
                waiters, bucket.waiters = bucket.waiters, []
                for waiter in waiters:
                    waiter()
                self._ready(bucket)

        self._calls.call(*self._question(bucket.number), collected)

    def _give_up(self, bucket: B) -> None:
        bucket.state = State.LEAVING
        self._graph.remove(bucket.key, lambda: self._drop(bucket))

    def _drop(self, bucket: B) -> None:
        if self._held.get(bucket.number) is bucket:
            del self._held[bucket.number]
            self._dropped(bucket)

    @abstractmethod
    def _empty(self, number: int) -> B:
        """A bucket with nothing in it, and its key."""

    @abstractmethod
    def _question(self, number: int) -> tuple[Range, Body]:
        """Whom to ask for what belongs into a bucket, and what."""

    @abstractmethod
    def _take(self, bucket: B, result: Result) -> None:
        """A part of an answer."""

    def _ready(self, bucket: B) -> None:
        """All of it is here."""

    def _dropped(self, bucket: B) -> None:
        """This broker does not hold it any more."""
