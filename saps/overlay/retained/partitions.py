"""Holding partitions: what many brokers look for is spread over a few places of the overlay, each with a few holders.

A holder has a key at the partition's place, so that one range call reaches all of them. It puts the key in *first* and
then collects what belongs into the partition: whoever comes second sees the other (decision 010), so nothing is missed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from hashlib import blake2b
from typing import Generic, TypeVar

from saps.overlay.frames.calls import Body, Result
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
    """A partition held here."""

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


def rank(partition: int, name: str) -> bytes:
    """Return the rank of a broker as holder of a partition, lowest first; each partition has its own order."""
    return blake2b(b"%d\0" % partition + name.encode(), digest_size=8).digest()


class Holder(ABC, Generic[B]):
    """The partitions held by one broker."""

    def __init__(self, port: Port, graph: SkipGraph, calls: RangeCalls) -> None:
        self._port = port
        self._graph = graph
        self._calls = calls
        self._held: dict[int, B] = {}

    @property
    def partitions(self) -> list[int]:
        """The partitions held here."""
        return list(self._held)

    def join(self, number: int, done: Callable[[], None] = lambda: None) -> None:
        """Become a holder of a partition; `done` runs when this broker has all of it."""
        partition = self._held.get(number)
        if partition is None or partition.state is State.LEAVING:
            partition = self._held[number] = self._empty(number)
            self._graph.insert(partition.key, lambda: self._start(partition))
        if partition.state is State.READY:
            done()
        else:
            partition.waiters.append(done)

    def rejoined(self) -> None:
        """Collect all partitions again after a cut, as others may hold them with other contents."""
        for partition in self._held.values():
            self._start_again(partition)

    def key_again(self, key: Key) -> None:
        """Collect the partition of a key again that was out of the ring for a while and has missed notices."""
        for partition in self._held.values():
            if partition.key == key:
                self._start_again(partition)

    def _start(self, partition: B) -> None:
        """Start to collect a partition whose key is in the overlay."""
        if self._held.get(partition.number) is partition:
            partition.state = State.COLLECTING
            self._begin(partition)

    def _start_again(self, partition: B) -> None:
        if partition.state is State.READY:
            self._start(partition)
        elif partition.state is State.COLLECTING:
            partition.missed = True

    def _begin(self, partition: B) -> None:
        """Prepare `_collect`; subclasses may do so in several steps."""
        self._collect(partition)

    def _collect(self, partition: B) -> None:
        self._ask(partition, *self._question(partition.number))

    def _ask(self, partition: B, where: Range, question: Body) -> None:
        def collected(outcome: Outcome) -> None:
            for result in outcome.results:
                self._take(partition, result)
            rest = self._rest(question, outcome)
            if partition.missed:
                partition.missed = False
                self._start(partition)
            elif rest is not None and partition.state is State.COLLECTING:
                self._port.after(0.0, lambda: self._ask(partition, where, rest))
            elif partition.state is State.COLLECTING:
                partition.state = State.READY
                waiters, partition.waiters = partition.waiters, []
                for waiter in waiters:
                    waiter()
                self._ready(partition)

        self._calls.call(where, question, collected)

    def _give_up(self, partition: B) -> None:
        partition.state = State.LEAVING
        self._graph.remove(partition.key, lambda: self._drop(partition))

    def _drop(self, partition: B) -> None:
        if self._held.get(partition.number) is partition:
            del self._held[partition.number]
            self._dropped(partition)

    @abstractmethod
    def _empty(self, number: int) -> B:
        """Return an empty partition with its key."""

    @abstractmethod
    def _question(self, number: int) -> tuple[Range, Body]:
        """Return the range and the body of the call that collects a partition."""

    @abstractmethod
    def _take(self, partition: B, result: Result) -> None:
        """Take a result of that call."""

    def _rest(self, question: Body, outcome: Outcome) -> Body | None:
        """Return the body of the call that collects what this outcome has left out, if there is something."""
        return None

    def _ready(self, partition: B) -> None:
        """Handle a partition that is complete."""

    def _dropped(self, partition: B) -> None:
        """Handle a partition that this broker no longer holds."""
