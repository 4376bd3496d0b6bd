"""The returned broker's side of a catch-up: names the wanted filters, and takes the missed publications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from saps.overlay.delivery.order import Inbox
from saps.overlay.frames.base import MOST_ANNOUNCED
from saps.overlay.frames.calls import Missing, Result
from saps.overlay.frames.delivery import Caught, MadeUp, WantedFilter, WantedFilters
from saps.overlay.port import Port
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.ring.keys import BrokerRef, Key


class Returned:
    """Handles the catch-up of one broker as the one that was cut off."""

    def __init__(self, port: Port, inbox: Inbox, subscriptions: Subscriptions) -> None:
        self._port = port
        self._inbox = inbox
        self._subscriptions = subscriptions
        self.adopted: Callable[[BrokerRef], Iterable[tuple[BrokerRef, list[str]]]] = lambda asking: ()
        """Returns, for an asking broker, the owners of sessions adopted here with the sessions' filters. It leaves out
        owners whose missed publications the asking broker has already sent at the adoption."""
        self._come: dict[BrokerRef, tuple[int, int]] = {}
        """By sender: the round of its `MadeUp` frames, and the number of the last frame taken in it."""

    def missing(self, body: Missing, keys: list[Key]) -> Iterable[Result]:
        """Handle a broker's notice to all that it has a log (`Missing`): name the wanted filters if there are any."""
        if body.broker.name != self._port.me.name and self._subscriptions.registrations:
            self.tell(body.broker, body.round, None)
        return ()

    def tell(self, sender: BrokerRef, number: int, start: int | None) -> None:
        """Send a broker this broker's filters (`WantedFilters`), in round `number`. `start` is the sequence number up
        to which the sender knows that this broker has everything, or None if unknown."""
        if start is not None:
            self._inbox.starts[sender] = start
        parts = list(self._parts(sender))
        for part, (owner, filters) in enumerate(parts):
            self._port.send(sender, WantedFilters(number, part, part == len(parts) - 1, filters, owner))

    def _parts(self, asking: BrokerRef) -> Iterator[tuple[BrokerRef | None, list[WantedFilter]]]:
        """Yield the contents of the frames: first all filters of this broker (owner None), then the filters of adopted
        sessions with their owner. Each has at most `MOST_ANNOUNCED` filters."""
        now, known = self._port.now, self._subscriptions.registrations
        own = {
            name: WantedFilter(each.topic_filter, each.version, now - each.since)
            for name, each in known.items()
            if each.wanted
        }
        for owner, names in ((None, [*own]), *self.adopted(asking)):
            filters = [own[name] for name in names if name in own]
            for begin in range(0, len(filters) if owner is not None else max(len(filters), 1), MOST_ANNOUNCED):
                yield owner, filters[begin : begin + MOST_ANNOUNCED]

    def on_made_up(self, sender: BrokerRef, frame: MadeUp) -> None:
        """Deliver a frame of missed publications if it is the next one of the newest round. Answers with the last frame
        taken (`Caught`), unless the frame is of an older round."""
        number, serial = self._come.get(sender, (0, 0))
        if number < frame.round:
            number, serial = frame.round, 0
        if (frame.round, frame.serial) == (number, serial + 1):
            serial += 1
            for body in frame.bodies:
                self._inbox.make_up(frame.origin or sender, body)
        self._come[sender] = number, serial
        if frame.round == number:
            self._port.send(sender, Caught(number, serial))
