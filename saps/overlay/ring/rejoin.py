"""Rejoins brokers after a cut: a broker that was declared dead is heard of again, and the ring may have become two.

1. A broker seldom returns alone, so some more dead brokers are probed at once.
2. Everything that was not announced or asked during the cut is announced and asked again.
3. The returned broker searches for a key of this one. If the search ends elsewhere, there are two rings.
4. Then own keys are inserted into the other ring (`saps.overlay.ring.partition_merge`), and all brokers of this ring
   are told to do the same.
"""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.frames.ring import Forgot, Heal, Ping
from saps.overlay.membership.failure_detector import Detector
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.ring.ring_probe import RingProbe
from saps.overlay.ring.skip_graph import SkipGraph

HEAL_EVERY = 1.0
"""Least seconds between two merges that a broker begins, between two `Heal` frames that it forwards, and between two
checks of returned brokers."""
LOOKS = 8
"""Most returned brokers in one check."""
PROBES = 4
"""Dead brokers probed when one of them has returned. With fewer than 2 the search would stop before all are found."""
RENEW = (0.5, 1.5, 3.0)
"""Seconds from a broker's return until everything is announced and asked again, then until the next times. The rings
should be one by then. It goes on while brokers return, and for the sum of these times after the last."""
HEARD = 1024
"""Most remembered `Heal` frames."""


class Rejoin:
    """Rejoins other brokers for one broker. `renew` announces and asks everything again."""

    def __init__(self, port: Port, graph: SkipGraph, detector: Detector, renew: Callable[[], None]) -> None:
        self._port = port
        self._graph = graph
        self._detector = detector
        self.ring_probe = RingProbe(port, graph, detector, self.merge)
        self._renew = renew
        self._serial = 0
        self._heard: dict[tuple[BrokerRef, int], None] = {}
        """The last `Heal` frames, oldest first."""
        self._call_next = self._merge_next = 0.0
        """When the next `Heal` may be forwarded, and the next merge may begin."""
        self._to_look_at: dict[str, BrokerRef] = {}
        """Brokers that may be in another ring, by name."""
        self._looking = False
        self._renewing = False
        self._renewed = 0
        """How often everything was announced again since the first broker returned."""
        self._renew_until = 0.0

    def back(self, was: BrokerRef, now: BrokerRef) -> None:
        """Handle a broker that was declared dead and is heard of again: after a restart it may be alone, after a
        partition the two sides must become one ring."""
        if was.incarnation != now.incarnation:
            self._serial += 1
            self._port.send(now, Heal(self._port.me, self._serial))
            return
        self._port.send(now, Forgot())
        self._detector.probe(PROBES)
        self._forgotten(now)

    @property
    def handlers(self) -> Handlers:
        return {
            Heal: self._on_heal,
            Forgot: lambda sender, frame: self._forgotten(sender),
        }

    def _forgotten(self, by: BrokerRef) -> None:
        """Handle the note that one of two brokers had declared the other dead."""
        self._say_again()
        self.suspect(by)

    def _on_heal(self, sender: BrokerRef, call: Heal) -> None:
        """Handle a `Heal`: two rings have met somewhere, or the sender has met a new incarnation of this broker."""
        name = (call.contact, call.serial)
        if name in self._heard or call.contact == self._port.me:
            return
        self._heard[name] = None
        if len(self._heard) > HEARD:
            del self._heard[next(iter(self._heard))]
        self._say_again()
        if sender != call.contact:
            self._pass_on(call)
        if sender == call.contact or not self._detector.dead:
            self.suspect(call.contact)
        else:
            self._detector.probe(PROBES)  # not all brokers through one contact

    def merge(self, contact: BrokerRef) -> None:
        """Merge the ring of a broker with this one, at most once in `HEAL_EVERY` seconds."""
        now = self._port.now
        if now < self._merge_next:
            self.suspect(contact)
            return
        self._merge_next = now + HEAL_EVERY
        self._graph.rejoin(contact)
        self._serial += 1
        self._pass_on(Heal(contact, self._serial))
        self._say_again()

    def _pass_on(self, call: Heal) -> None:
        if self._port.now < self._call_next:
            return
        self._call_next = self._port.now + HEAL_EVERY
        for neighbour in self._graph.neighbours().values():
            if neighbour.name != call.contact.name:
                self._port.send(neighbour, call)

    def suspect(self, broker: BrokerRef) -> None:
        """Schedule a check whether a broker is in another ring."""
        if len(self._to_look_at) < LOOKS:
            self._to_look_at[broker.name] = broker
        if not self._looking:
            self._look()

    def _look(self) -> None:
        brokers, self._to_look_at = self._to_look_at, {}
        self._looking = bool(brokers)
        for broker in brokers.values():
            self.ring_probe.look(broker, self.merge)
        if brokers:
            self._port.after(HEAL_EVERY, self._look)

    def _say_again(self) -> None:
        self._renew_until = self._port.now + sum(RENEW)
        if not self._renewing:
            self._renewing, self._renewed = True, 0
            self._port.after(RENEW[0], self._say_now)

    def _say_now(self) -> None:
        self._renew()
        self._renewed += 1
        pause = RENEW[min(self._renewed, len(RENEW) - 1)]
        if self._port.now + pause / 2 < self._renew_until:
            self._port.after(pause, self._say_now)
        else:
            self._renewing = False

    def told_of(self, broker: BrokerRef) -> None:
        """Ping a dead broker whose frame others have forwarded: it may be alive."""
        if self._detector.is_dead(broker):
            self._port.send(broker, Ping())
