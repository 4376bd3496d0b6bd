"""Failure detection: declares silent brokers dead (after SWIM: Das, Gupta & Motivala 2002, without its gossip).

A broker watches those whose failure it would have to repair: its neighbours in the overlay, those that owe it an
acknowledgement, and those to which it has just sent something.

1. Every frame is a sign of life. A broker that is silent for `heartbeat` seconds is pinged.
2. A broker that is silent for `suspect_after` seconds is dead, unless another one reaches it
   (`saps.overlay.membership.detours`). So is one whose link broke and that does not answer within `dead_after` seconds.
3. Deaths are not gossiped: each broker finds out for itself what it depends on.

A later incarnation of a broker counts once it has been heard itself. Until then it is hearsay: it is watched like any
other, but it does not replace the incarnation that speaks, and its silence does not make that one dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

import msgspec

from saps.overlay.frames.ring import Ping
from saps.overlay.membership.members import Members
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

REMEMBERED = 1 << 16
"""Most dead brokers that are remembered: more than a mesh has. Without a limit others could name any number."""


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How soon a silent broker is declared dead.

    After a crash delivery continues after about `dead_after` seconds if the host is up (its links break at once), or
    `suspect_after` if it vanished, plus less than a second for the repair."""

    heartbeat: float = 0.5
    """Seconds of silence after which a watched broker is pinged. A shorter time costs 2 frames for each neighbour and
    interval."""
    suspect_after: float = 1.5
    """Seconds of silence after which a watched broker is dead. A shorter time mistakes slow brokers for dead ones."""
    dead_after: float = 1.0
    """Seconds after which a broker whose link broke is dead, unless it answers."""
    probe: float = 1.0
    """Seconds between two attempts to reach a dead broker, one at a time, to end a partition."""


class _Watched:
    __slots__ = ("answered", "broken", "heard", "pinged", "ref")

    def __init__(self, ref: BrokerRef, now: float) -> None:
        self.ref = ref
        self.heard = now
        self.pinged = now
        self.answered = False
        """Whether it has been heard since it was first watched, last addressed, or last pinged."""
        self.broken: float | None = None
        """When its link broke; None if it has been heard since."""


class Detector:
    """One broker's view of which others are alive."""

    def __init__(
        self,
        port: Port,
        settings: DetectorSettings,
        detour: Callable[[BrokerRef], bool],
        dead: Callable[[BrokerRef], None],
        members: Members,
    ) -> None:
        """`detour` is called for a broker that would be declared dead: it is not, if that is True. `dead` is called
        once for each broker declared dead."""
        self._port = port
        self.settings = settings
        self._detour = detour
        self._on_dead = dead
        self._members = members
        self._watched: dict[str, _Watched] = {}
        self._hearsay: dict[BrokerRef, _Watched] = {}
        """Incarnations that others have reported, later than the newest one heard."""
        self._dead: dict[str, BrokerRef] = {}
        self._silent: dict[str, BrokerRef] = {}
        """Hearsay that was declared dead, by name."""
        self._false: dict[str, BrokerRef] = {}
        """Dead hearsay of which an earlier incarnation has been heard since, by name."""
        self._newest: dict[str, int] = {}
        """Newest incarnation heard of each broker."""
        self.first_heard: dict[str, tuple[int, float]] = {}
        """The first incarnation heard of each broker, and when, in seconds of the port's clock."""
        self._to_probe: dict[BrokerRef, None] = {}
        """All brokers declared dead and not heard since, the one to probe next first."""

    @property
    def suspects(self) -> list[str]:
        """Names of the watched brokers whose link broke and that have not answered since then."""
        return [watched.ref.name for watched in self._all() if watched.broken is not None]

    def lost(self, broker: BrokerRef) -> bool:
        """Return whether this incarnation of a broker is dead or has ended."""
        dead = self._dead.get(broker.name)
        if dead is not None and dead.incarnation >= broker.incarnation:
            return True
        if broker in (self._silent.get(broker.name), self._false.get(broker.name)):
            return True
        return self.stale_incarnation(broker)

    def stale_incarnation(self, broker: BrokerRef) -> bool:
        """Return whether a newer incarnation of the broker is known, or this one has left."""
        return self._newest.get(broker.name, 0) > broker.incarnation

    def reachable(self, broker: BrokerRef) -> bool:
        if not self._to_probe and self._newest.get(broker.name) == broker.incarnation:  # none is dead
            watched = self._watched.get(broker.name)
            return watched is None or watched.broken is None
        watched = self._hearsay.get(broker) if self.is_hearsay(broker) else self._watched.get(broker.name)
        return (watched is None or watched.broken is None) and not self.lost(broker)

    def knows(self, broker: BrokerRef) -> bool:
        """Return whether the broker has been heard, or is watched."""
        return broker.name in self._newest or broker.name in self._watched or broker in self._hearsay

    def heard(self, broker: BrokerRef) -> BrokerRef | None:
        """Take a sign of life. Returns the reference under which the broker was declared dead, or None if it was
        not."""
        newest = self._newest.get(broker.name, 0)
        if broker.incarnation > newest:
            self._newest[broker.name] = broker.incarnation
            self.first_heard.setdefault(broker.name, (broker.incarnation, self._port.now))
            watched = self._watched.pop(broker.name, None)
            if watched is not None and watched.ref.incarnation < broker.incarnation:
                self._on_dead(watched.ref)
            elif newest:
                self._on_dead(msgspec.structs.replace(broker, incarnation=newest))
            if (told := self._hearsay.pop(broker, None)) is not None:
                self._watched[broker.name] = told
            if self._false.get(broker.name) == broker:
                del self._false[broker.name]
            self._members.heard(broker)
        watched = self._watched.get(broker.name)
        if watched is not None:
            watched.heard = self._port.now
            watched.answered = True
            if watched.broken is not None:
                watched.broken = None
                self._members.heard(broker)
        if not self._to_probe:
            return None
        dead, silent = self._dead.pop(broker.name, None), self._silent.pop(broker.name, None)
        if dead is not None and dead.incarnation == broker.incarnation:
            self._members.heard(broker)
        for given_up in (dead, silent):
            if given_up is not None:
                self._to_probe.pop(given_up, None)
        if silent is not None and silent.incarnation > broker.incarnation:
            self._false[broker.name] = silent
            silent = None
        return dead or silent

    @property
    def dead(self) -> bool:
        """Whether any broker was declared dead and has not been heard since."""
        return bool(self._to_probe)

    def is_dead(self, broker: BrokerRef) -> bool:
        """Return whether exactly this incarnation was declared dead."""
        return broker in self._to_probe

    def broke(self, broker: BrokerRef) -> None:
        """Give a broker whose link went down `dead_after` seconds to answer."""
        if self.lost(broker):
            return
        watched = self._watch(broker)
        if watched.broken is None:
            watched.broken = self._port.now
            if not self.is_hearsay(broker):
                self._members.suspected(broker)
            self._port.send(broker, Ping())
            self._port.after(self.settings.dead_after, partial(self._still_broken, watched, watched.broken))

    def _still_broken(self, watched: _Watched, since: float) -> None:
        if watched.broken == since and watched in self._all():
            self._give_up(watched.ref)

    def left(self, broker: BrokerRef) -> None:
        """Stop watching a broker that has left."""
        self._watched.pop(broker.name, None)
        self._newest[broker.name] = max(self._newest.get(broker.name, 0), broker.incarnation + 1)
        self._members.left(broker)

    def tick(self, needed: Iterable[BrokerRef], addressed: Iterable[tuple[BrokerRef, float]] = ()) -> None:
        """Ping silent brokers and declare dead ones, once in a heartbeat. Stop watching those that are no longer
        `needed` and have been heard since they were last `addressed` (the time of the last frame to them)."""
        now, settings = self._port.now, self.settings
        wanted = set()
        for broker in needed:
            if not self.lost(broker):
                wanted.add(self._watch(broker))
        for broker, when in addressed:
            if not self.lost(broker):
                watched = self._watch(broker)
                wanted.add(watched)
                if watched.heard <= when:
                    watched.answered = False
        for watched in self._all():
            silent = now - watched.heard
            if silent >= settings.suspect_after and now - watched.pinged < settings.suspect_after:
                self._give_up(watched.ref)
            elif watched not in wanted and watched.broken is None and watched.answered:
                self._unwatch(watched.ref)
            elif silent >= settings.heartbeat or watched.broken is not None:
                watched.pinged = now
                watched.answered = False
                self._port.send(watched.ref, Ping())

    def silent(self) -> list[BrokerRef]:
        """Return the watched brokers whose link broke, or that have not answered in time."""
        longest = self.settings.suspect_after - self.settings.heartbeat
        now = self._port.now
        return [each.ref for each in self._watched.values() if each.broken is not None or now - each.heard >= longest]

    def probe(self, count: int = 1) -> list[BrokerRef]:
        """Ping so many dead brokers, in rotation, and return them."""
        found = list(islice(self._to_probe, count))
        for broker in found:
            del self._to_probe[broker]
            self._to_probe[broker] = None
            self._port.send(broker, Ping())
        return found

    def is_hearsay(self, broker: BrokerRef) -> bool:
        """Return whether only others have reported this incarnation, which is later than the newest one heard."""
        return broker.incarnation > self._newest.get(broker.name, broker.incarnation)

    def _all(self) -> list[_Watched]:
        return [*self._watched.values(), *self._hearsay.values()]

    def _watch(self, broker: BrokerRef) -> _Watched:
        if self.is_hearsay(broker):
            told = self._hearsay.get(broker)
            if told is None:
                told = self._hearsay[broker] = _Watched(broker, self._port.now)
            return told
        watched = self._watched.get(broker.name)
        if watched is None or watched.ref.incarnation < broker.incarnation:
            watched = self._watched[broker.name] = _Watched(broker, self._port.now)
        return watched

    def _give_up(self, broker: BrokerRef) -> None:
        if self._detour(broker):
            return
        given_up = self._silent if self._unwatch(broker) else self._dead
        if given_up is self._dead:
            self._members.died(broker)
        if (earlier := given_up.get(broker.name)) is not None:
            self._to_probe.pop(earlier, None)
        given_up[broker.name] = broker
        self._to_probe[broker] = None
        if len(self._to_probe) > REMEMBERED:
            self._forget_one()
        self._on_dead(broker)

    def _forget_one(self) -> None:
        """Forget the dead broker that was probed longest ago."""
        broker = next(iter(self._to_probe))
        del self._to_probe[broker]
        for given_up in (self._dead, self._silent):
            if given_up.get(broker.name) == broker:
                del given_up[broker.name]

    def _unwatch(self, broker: BrokerRef) -> bool:
        """Stop watching a broker; return whether it was hearsay."""
        if self._hearsay.pop(broker, None) is not None:
            return True
        self._watched.pop(broker.name, None)
        return False
