"""Failure detection: which brokers are taken for dead (after SWIM: Das, Gupta & Motivala 2002, without its gossip).

A broker watches those whose failure it would have to mend: its neighbours in the overlay, those that owe it an
acknowledgement, and those it has just sent something to. Every frame is a sign of life; who is silent for `heartbeat`
seconds is pinged; who is silent for `suspect_after`, or whose link broke and does not come back within `dead_after`,
is dead. Nobody else is told: each broker finds out for itself what it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from saps.overlay.frames import Ping
from saps.overlay.keys import BrokerRef
from saps.overlay.port import Port


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How soon a silent broker is given up. The time until delivery goes on after a crash is about `dead_after` if the
    host is up (its links break at once), `suspect_after` if it vanished, and less than a second more for the repair."""

    heartbeat: float = 0.5
    """Seconds of silence after which a watched broker is pinged. Shorter costs frames: 2 a neighbour and interval."""
    suspect_after: float = 1.5
    """Seconds of silence after which a watched broker is dead. Shorter mistakes a slow broker for a dead one."""
    dead_after: float = 1.0
    """Seconds after which a broker whose link broke is dead, unless it answers."""
    probe: float = 1.0
    """Seconds between two attempts to reach a dead broker again (one of them at a time), to heal a partition."""


class _Watched:
    __slots__ = ("answered", "broken", "heard", "pinged", "ref")

    def __init__(self, ref: BrokerRef, now: float) -> None:
        self.ref = ref
        self.heard = now
        self.pinged = now
        self.answered = False
        """It has been heard since it was first watched, last addressed, or last pinged."""
        self.broken: float | None = None
        """When its link broke; None if it has been heard since."""


class Detector:
    """The opinion of one broker about the others. `dead` is called once for each broker given up."""

    def __init__(self, port: Port, settings: DetectorSettings, dead: Callable[[BrokerRef], None]) -> None:
        self._port = port
        self.settings = settings
        self._on_dead = dead
        self._watched: dict[str, _Watched] = {}
        self._dead: dict[str, BrokerRef] = {}
        self._newest: dict[str, int] = {}
        """Newest incarnation seen of each broker."""
        self._probed = 0

    @property
    def suspects(self) -> list[str]:
        """Names of the watched brokers whose link broke and that have not answered since."""
        return [name for name, watched in self._watched.items() if watched.broken is not None]

    def lost(self, broker: BrokerRef) -> bool:
        """True if this life of the broker is over."""
        dead = self._dead.get(broker.name)
        if dead is not None and dead.incarnation >= broker.incarnation:
            return True
        return self.superseded(broker)

    def superseded(self, broker: BrokerRef) -> bool:
        """True if a newer life of the broker has been heard of, or this one has taken its leave."""
        return self._newest.get(broker.name, 0) > broker.incarnation

    def reachable(self, broker: BrokerRef) -> bool:
        watched = self._watched.get(broker.name)
        return (watched is None or watched.broken is None) and not self.lost(broker)

    def heard(self, broker: BrokerRef) -> BrokerRef | None:
        """A sign of life. Returns the ref under which the broker was taken for dead, if it was."""
        newest = self._newest.get(broker.name, 0)
        if broker.incarnation > newest:
            self._newest[broker.name] = broker.incarnation
            watched = self._watched.pop(broker.name, None)
            if watched is not None and watched.ref.incarnation < broker.incarnation:
                self._on_dead(watched.ref)
            elif newest:
                self._on_dead(msgspec.structs.replace(broker, incarnation=newest))
        watched = self._watched.get(broker.name)
        if watched is not None:
            watched.heard = self._port.now
            watched.answered = True
            watched.broken = None
        return self._dead.pop(broker.name, None)

    def broke(self, broker: BrokerRef) -> None:
        """The link to a broker went down: it has `dead_after` seconds to answer."""
        if self.lost(broker):
            return
        watched = self._watch(broker)
        if watched.broken is None:
            watched.broken = self._port.now
            self._port.send(broker, Ping())

    def left(self, broker: BrokerRef) -> None:
        """A broker has taken its leave: nothing more is expected of it."""
        self._watched.pop(broker.name, None)
        self._newest[broker.name] = max(self._newest.get(broker.name, 0), broker.incarnation + 1)

    def tick(self, needed: Iterable[BrokerRef], addressed: Iterable[tuple[BrokerRef, float]] = ()) -> None:
        """Once a heartbeat: ping the silent, give up the dead, stop watching those that are not `needed` any more and
        have been heard since they were last `addressed` (when something was sent to them)."""
        now, settings = self._port.now, self.settings
        names = set()
        for broker in needed:
            if not self.lost(broker):
                names.add(broker.name)
                self._watch(broker)
        for broker, when in addressed:
            if not self.lost(broker):
                names.add(broker.name)
                watched = self._watch(broker)
                if watched.heard <= when:
                    watched.answered = False
        for name, watched in list(self._watched.items()):
            silent = now - watched.heard
            if (watched.broken is not None and now - watched.broken >= settings.dead_after) or (
                silent >= settings.suspect_after and now - watched.pinged < settings.suspect_after
            ):
                self._give_up(watched.ref)
            elif name not in names and watched.broken is None and watched.answered:
                del self._watched[name]
            elif silent >= settings.heartbeat or watched.broken is not None:
                watched.pinged = now
                watched.answered = False
                self._port.send(watched.ref, Ping())

    def probe(self) -> None:
        """Try to reach one of the dead."""
        if self._dead:
            names = sorted(self._dead)
            self._probed = (self._probed + 1) % len(names)
            self._port.send(self._dead[names[self._probed]], Ping())

    def _watch(self, broker: BrokerRef) -> _Watched:
        watched = self._watched.get(broker.name)
        if watched is None or watched.ref.incarnation < broker.incarnation:
            watched = self._watched[broker.name] = _Watched(broker, self._port.now)
        return watched

    def _give_up(self, broker: BrokerRef) -> None:
        del self._watched[broker.name]
        self._dead[broker.name] = broker
        self._on_dead(broker)
