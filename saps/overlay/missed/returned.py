"""The returned broker's side: what it wants of what it has missed, and how it takes that."""

from __future__ import annotations

from collections.abc import Iterable

from saps.overlay.delivery.order import Inbox
from saps.overlay.frames.base import MOST_ANNOUNCED
from saps.overlay.frames.calls import Missing, Result
from saps.overlay.frames.delivery import Caught, MadeUp, WantedFilter, WantedFilters
from saps.overlay.port import Port
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.ring.keys import BrokerRef, Key


class Returned:
    """Of one broker."""

    def __init__(self, port: Port, inbox: Inbox, subscriptions: Subscriptions) -> None:
        self._port = port
        self._inbox = inbox
        self._subscriptions = subscriptions
        self._come: dict[BrokerRef, tuple[int, int]] = {}
        """What makes this broker up: the round, and the last frame of it."""

    def missing(self, body: Missing, keys: list[Key]) -> Iterable[Result]:
        """All are told that there is something."""
        if body.broker.name != self._port.me.name and self._subscriptions.registrations:
            self.tell(body.broker, body.round, None)
        return ()

    def tell(self, sender: BrokerRef, number: int, start: int | None) -> None:
        """Say what this broker wants."""
        if start is not None:
            self._inbox.starts[sender] = start
        now = self._port.now
        filters = [
            WantedFilter(each.topic_filter, each.version, now - each.since)
            for each in self._subscriptions.registrations.values()
            if each.wanted
        ]
        parts = range(0, max(len(filters), 1), MOST_ANNOUNCED)
        for part, begin in enumerate(parts):
            last = part == len(parts) - 1
            self._port.send(sender, WantedFilters(number, part, last, filters[begin : begin + MOST_ANNOUNCED]))

    def on_made_up(self, sender: BrokerRef, frame: MadeUp) -> None:
        number, serial = self._come.get(sender, (0, 0))
        if number < frame.round:
            number, serial = frame.round, 0
        if (frame.round, frame.serial) == (number, serial + 1):
            serial += 1
            for body in frame.bodies:
                self._inbox.make_up(sender, body)
        self._come[sender] = number, serial
        if frame.round == number:
            self._port.send(sender, Caught(number, serial))
