"""The returned broker's side of a catch-up: names the wanted filters, and takes the missed publications."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from saps.marks import hit
from saps.overlay.delivery.order import Inbox
from saps.overlay.delivery.publications import batch_of, select
from saps.overlay.frames.base import MOST_ANNOUNCED
from saps.overlay.frames.calls import Missing, Result
from saps.overlay.frames.delivery import Caught, CaughtUp, Former, MadeUp, Publish, WantedFilter, WantedFilters
from saps.overlay.missed.flight import MOST
from saps.overlay.port import Port
from saps.overlay.rendezvous.subscriber_registry import Subscriptions
from saps.overlay.ring.keys import BrokerRef, Key
from saps.routing.batch import Batch

if TYPE_CHECKING:
    from saps.overlay.sessions.heritage import Heritage, Legacy

SLOWEST = 1000.0
"""Missed publications a second, over all topics, that are taken however slow the clients are: one that cannot keep up
with them loses the oldest in its queue, as others must not wait for it for hours."""
AGAIN = 0.01
"""Seconds between two looks at the clients."""


class _Named(NamedTuple):
    """The groups of sessions that were named to a broker."""

    round: int
    at: float
    """When, in seconds of the port's clock."""
    groups: dict[int, list[tuple[str, int]]]
    """`Legacy.clients`, by `WantedFilters.number`"""


class Returned:
    """Handles the catch-up of one broker as the one that was cut off."""

    def __init__(self, port: Port, inbox: Inbox, subscriptions: Subscriptions, lagging: Callable[[], bool]) -> None:
        """`lagging` returns `saps.mesh.Local.lagging`."""
        self._port = port
        self._inbox = inbox
        self._subscriptions = subscriptions
        self._lagging = lagging
        self.heritage: Heritage | None = None
        """The former brokers of the sessions here; None: there are no sessions."""
        self._come: dict[BrokerRef, tuple[int, int]] = {}
        """By sender: the round of its `MadeUp` frames, and the number of the last frame taken in it."""
        self._named: dict[BrokerRef, list[_Named]] = {}
        """By sender: what it was named in the last two rounds."""
        self._until = 0.0
        """When the next frame is taken at the latest, in seconds of the port's clock."""
        self._waiting: dict[BrokerRef, deque[MadeUp]] = {}
        """By sender: frames that wait for slow clients, or for what they must not overtake."""

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
        parts, now = list(self._parts(sender)), self._port.now
        groups = {part: legacy.clients for part, (legacy, _) in enumerate(parts) if legacy is not None}
        self._named[sender] = [*self._named.get(sender, [])[-1:], _Named(number, now, groups)]
        for part, (legacy, filters) in enumerate(parts):
            former: list[Former] = []
            if legacy is not None:
                for stay, owed in zip(legacy.stays, legacy.owed, strict=True):
                    former.append(Former(stay.broker, now - stay.left, now - stay.came, owed))
            self._port.send(sender, WantedFilters(number, part, part == len(parts) - 1, filters, former))

    def _parts(self, asking: BrokerRef) -> Iterator[tuple[Legacy | None, list[WantedFilter]]]:
        """Yield the contents of the frames: first all filters of this broker (None), then those of sessions that were
        at other brokers. Each has at most `MOST_ANNOUNCED` filters."""
        now = self._port.now
        own = {
            name: WantedFilter(each.topic_filter, each.version, now - each.since)
            for name, each in self._subscriptions.registrations.items()
            if each.wanted
        }
        legacies = self.heritage.legacies(asking) if self.heritage is not None else ()
        inherited = ((legacy, [own[name] for name in legacy.filters if name in own]) for legacy in legacies)
        for legacy, filters in ((None, [*own.values()]), *inherited):
            for begin in range(0, len(filters) if legacy is not None else max(len(filters), 1), MOST_ANNOUNCED):
                yield legacy, filters[begin : begin + MOST_ANNOUNCED]

    def on_made_up(self, sender: BrokerRef, frame: MadeUp) -> None:
        """Take a frame of missed publications, once the clients here keep up with those taken before, and what it must
        not overtake has come."""
        waiting = self._waiting.get(sender)
        if waiting is None:
            if not self._must_wait(sender, frame):
                self._take(sender, frame)
                return
            if not self._waiting:
                self._port.after(AGAIN, self._take_up)
            waiting = self._waiting[sender] = deque()
        if len(waiting) < MOST:
            waiting.append(frame)

    def _must_wait(self, sender: BrokerRef, frame: MadeUp) -> bool:
        if self._lagging() and self._port.now < self._until:
            hit("what was missed waits for slow clients")
            return True
        missing = [each for each in frame.after if not self._inbox.has(sender, each.topic, each.prev)]
        if any([self._inbox.expect(sender, each.topic, each.prev) for each in missing]):
            hit("what was missed waits for what was sent directly before")
            return True
        return False

    def _take_up(self) -> None:
        """Take the frames that wait, unless they must wait longer."""
        for sender, waiting in list(self._waiting.items()):
            while waiting and not self._must_wait(sender, waiting[0]):
                self._take(sender, waiting.popleft())
            if not waiting:
                del self._waiting[sender]
        if self._waiting:
            self._port.after(AGAIN, self._take_up)

    def _take(self, sender: BrokerRef, frame: MadeUp) -> None:
        """Deliver a frame if it is the next one of the newest round. Answers with the last frame taken (`Caught`),
        unless the frame is of an older round."""
        number, serial = self._come.get(sender, (0, 0))
        if number < frame.round:
            number, serial = frame.round, 0
        if (frame.round, frame.serial) == (number, serial + 1):
            serial += 1
            origin = frame.origin or sender
            parts = [part for body in frame.bodies for part in self._make_up(origin, body, frame)]
            for late in (False, True):
                batches = [batch for batch, came in parts if came is late]
                if batches and self.heritage is not None and frame.groups:
                    self.heritage.make_up(self._sessions(sender, frame), batches, late)
            self._until = max(self._until, self._port.now) + sum(len(body.which) for body in frame.bodies) / SLOWEST
        self._come[sender] = number, serial
        if frame.round == number:
            self._port.send(sender, Caught(number, serial))

    def _sessions(self, sender: BrokerRef, frame: MadeUp) -> list[tuple[str, int]]:
        """Return the sessions of the groups that a frame is for, as they were named to the sender."""
        named = self._named_in(sender, frame.round)
        return [session for number in frame.groups for session in (named.groups.get(number, ()) if named else ())]

    def _named_in(self, sender: BrokerRef, number: int) -> _Named | None:
        """Return what a sender was named in this round; it may have numbered the round anew."""
        return next((named for named in reversed(self._named.get(sender, ())) if named.round <= number), None)

    def on_caught_up(self, sender: BrokerRef, frame: CaughtUp) -> None:
        """Note that a sender owes nothing more to the sessions that it was named."""
        named = self._named_in(sender, frame.round)
        if named is not None and self.heritage is not None:
            for sessions in named.groups.values():
                self.heritage.caught_up(sessions, sender.name, named.at)

    def _make_up(self, origin: BrokerRef, body: Publish, frame: MadeUp) -> Iterator[tuple[Batch, bool]]:
        """Deliver missed publications. Yield those that do not come to all that want them so: those that this broker
        has not missed, and those that had come to it before (True)."""
        came = [self._inbox.delivered(origin, part.topic) for part in body.parts]
        late = [seq <= came[part] for part, seq in zip(body.which, body.seqs, strict=True)]
        if not frame.sent:
            self._inbox.make_up(origin, body, given=not frame.here)
        for before in (True,) if frame.here or frame.sent else (False, True):
            if found := [index for index, each in enumerate(late) if each is before]:
                yield batch_of(select(body, found), origin), before
