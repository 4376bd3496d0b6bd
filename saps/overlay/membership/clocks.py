"""Whose machine's clock is wrong: brokers compare their clocks, as retained messages, claims and expiry go by them.

A `Ping` that says when it was sent is answered by a `Pong` that says so, too, and what the other clock shows. That one
is ahead by something between (shown there - shown here at the answer) and (shown there - shown here at the question):
frames that waited make the two differ more, so that they accuse nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from saps.overlay.frames.ring import Ping, Pong
from saps.overlay.membership.members import Tell
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef

COMPARE = 10.0
"""Seconds between two comparisons. Shorter costs `ASKED` pings and answers each."""
ASKED = 8
"""Brokers that are asked at a time."""
TOLERANCE = 1.0
"""Seconds by which clocks may certainly differ before that is said. Synchronised ones differ by milliseconds."""
AGAIN = 3600.0
"""Seconds until the same broker is named again in the log."""


class _Compared(NamedTuple):
    """An answer."""

    least: float
    most: float
    """Seconds between which the other clock is ahead."""
    at: float
    """When it came."""

    @property
    def ahead(self) -> float:
        """Seconds by which the other clock is certainly ahead; negative: behind."""
        return max(self.least, 0.0) + min(self.most, 0.0)


class Clocks:
    """The clocks of other brokers, as one broker sees them."""

    def __init__(
        self,
        port: Port,
        wall: Callable[[], float],
        brokers: Callable[[], Iterable[BrokerRef]],
        tell: Tell | None = None,
    ) -> None:
        """`wall`: this broker's clock, seconds since the epoch; `brokers`: those that may be asked; `tell` gets lines
        for the log."""
        self._port = port
        self._wall = wall
        self._brokers = brokers
        self._asked: dict[str, None] = {}
        """Names, in the order in which they were asked last."""
        self._compared: dict[str, _Compared] = {}
        self._named: dict[str, float] = {}
        """When each was named last."""
        self._tell = tell

    @property
    def wrong(self) -> dict[str, float]:
        """By name: seconds by which clocks are ahead of this one's (negative: behind) that differ beyond tolerance."""
        return {name: each.ahead for name, each in self._compared.items() if abs(each.ahead) > TOLERANCE}

    def compare(self) -> None:
        """Say what has been found, and ask again: those that were not asked for longest."""
        recently = self._port.now - 3 * COMPARE
        self._compared = {name: each for name, each in self._compared.items() if each.at > recently}
        self._say()
        there = {broker.name: broker for broker in self._brokers() if not self._port.lost(broker)}
        turns = [name for name in self._asked if name in there]
        self._asked = dict.fromkeys([*(name for name in there if name not in self._asked), *turns])
        for name in list(islice(self._asked, ASKED)):
            del self._asked[name]
            self._asked[name] = None
            self._port.send(there[name], Ping(_milliseconds(self._wall())))

    @property
    def handlers(self) -> Handlers:
        return {Ping: self._on_ping, Pong: self._on_pong}

    def _on_ping(self, sender: BrokerRef, ping: Ping) -> None:
        self._port.send(sender, Pong(ping.at, _milliseconds(self._wall())) if ping.at else Pong())

    def _on_pong(self, broker: BrokerRef, pong: Pong) -> None:
        """A broker's clock has shown `at`, after this one's had `asked`. In ms; 0: neither was said."""
        asked, shown, now = pong.asked, pong.at, _milliseconds(self._wall())
        if shown and 0 < asked <= now and broker.name in self._asked:
            self._compared[broker.name] = _Compared((shown - now) / 1000, (shown - asked) / 1000, self._port.now)

    def _say(self) -> None:
        """Name those whose clocks differ; if they are most of several this broker's own is the one."""
        wrong, now = self.wrong, self._port.now
        if len(wrong) > 1 and 2 * len(wrong) > len(self._compared):
            wrong = {self._port.me.name: -sorted(wrong.values())[len(wrong) // 2]}
        agree = len(self._compared) - len(self.wrong)
        for name, ahead in wrong.items():
            if self._tell is None or now - self._named.get(name, -AGAIN) < AGAIN:
                continue
            self._named[name] = now
            if len(self._named) > 8 * ASKED:
                del self._named[next(iter(self._named))]
            by = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'}"
            if name == self._port.me.name:
                what = f"the clock of this broker, {name}, is {by} those of most others"
            else:
                what = f"the clock of broker {name} is {by} this one's, with which {agree} others agree"
            self._tell(f"{what}: set its machine's clock and restart it", True)


def _milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000))
