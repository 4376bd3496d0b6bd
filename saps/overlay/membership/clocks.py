"""Compares the clocks of brokers to find wrong ones: retained messages, claims and expiry depend on them.

A `Ping` with its time of sending is answered by a `Pong` with that time and the other clock's time. The other clock is
ahead by at least (its time - own time at the answer) and at most (its time - own time at the question). Delayed frames
only widen this interval, so they accuse no broker.
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
"""Seconds between two comparisons. Each costs `ASKED` pings and answers."""
ASKED = 8
"""Brokers asked in one comparison."""
TOLERANCE = 1.0
"""Difference in seconds above which a clock counts as wrong. Synchronised clocks differ by milliseconds."""
AGAIN = 3600.0
"""Seconds until the log names the same broker again."""


class _Compared(NamedTuple):
    """The comparison with one broker's clock."""

    least: float
    most: float
    """`least` and `most`: bounds in seconds of how far the other clock is ahead."""
    at: float
    """When the answer came."""

    @property
    def ahead(self) -> float:
        """Seconds by which the other clock is certainly ahead, or behind if negative."""
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
        """`wall` returns this broker's clock in seconds since the epoch, `brokers` those to compare with; `tell` takes
        lines for the log."""
        self._port = port
        self._wall = wall
        self._brokers = brokers
        self._asked: dict[str, None] = {}
        """Names of the brokers asked, the one asked longest ago first."""
        self._compared: dict[str, _Compared] = {}
        self._named: dict[str, float] = {}
        """By name: when the log named the broker last."""
        self._tell = tell

    @property
    def wrong(self) -> dict[str, float]:
        """The brokers whose clocks differ by more than `TOLERANCE`: by name, the seconds ahead of this one's clock."""
        return {name: each.ahead for name, each in self._compared.items() if abs(each.ahead) > TOLERANCE}

    def compare(self) -> None:
        """Report wrong clocks, and ask the brokers that were asked longest ago."""
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
        """Take an answer: the other clock showed `at` after this one showed `asked`, both in ms; 0 means no
        comparison."""
        asked, shown, now = pong.asked, pong.at, _milliseconds(self._wall())
        if shown and 0 < asked <= now and broker.name in self._asked:
            self._compared[broker.name] = _Compared((shown - now) / 1000, (shown - asked) / 1000, self._port.now)

    def _say(self) -> None:
        """Log the brokers whose clocks differ; if most of several differ, this broker's own clock is the wrong one."""
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
