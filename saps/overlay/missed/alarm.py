"""Tells all brokers which others are cut off, so that all log what these miss.

A broker without links to a lost one does not notice: it finds no filters of that one when it collects those for a
topic, and has nothing to send to it. So each broker that has lost others names them to the brokers linked to it, at
once and every `AGAIN` seconds, and all pass that on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from saps.overlay.frames.delivery import MOST_CUT_OFF, CutOff
from saps.overlay.missed.catchup import LINGER, CatchUp
from saps.overlay.port import Handlers, Port
from saps.overlay.ring.keys import BrokerRef

AGAIN = 10.0
"""Seconds until all are told again: less than a log lasts that nobody needs."""
QUIET = 5.0
"""Seconds for which nobody repeats what all have been told."""
TOGETHER = 1.0
"""Seconds for which losses are collected after the first one, to be told at once."""


class Alarm:
    """One broker's part in telling all."""

    def __init__(self, port: Port, linked: Callable[[], Iterable[BrokerRef]], catch_up: CatchUp) -> None:
        """`linked` returns the brokers that are linked to this one; some may come twice."""
        self._port = port
        self._linked = linked
        self._catch_up = catch_up
        self._named: dict[str, float] = {}
        """When each broker was last named as cut off, in seconds of the port's clock."""
        self._lost: list[str] = []
        """Brokers that this one has lost and not named yet."""
        self._serial = 0
        self._passed: dict[str, tuple[int, int, float]] = {}
        """By teller: its incarnation, the serial number of the last frame of it that was passed on, and when."""

    @property
    def handlers(self) -> Handlers:
        return {CutOff: self._on_cut_off}

    def lost(self, broker: BrokerRef) -> None:
        """Tell all that this broker has lost another one, unless others have."""
        if not self._lost:
            alone = self._port.now - max(self._named.values(), default=-math.inf) >= QUIET
            self._port.after(0.0 if alone else TOGETHER, self._tell_lost)
        self._lost.append(broker.name)

    def leaves(self) -> None:
        """Tell all that this broker leaves, before its keys do: its sessions go on elsewhere."""
        self._tell([self._port.me.name])

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, []
        self._tell([name for name in dict.fromkeys(lost) if self._fresh(name)])

    def again(self) -> None:
        """Tell all who is cut off from here, unless they have just been told of some."""
        now = self._port.now
        self._named = {name: at for name, at in self._named.items() if now - at < LINGER}
        self._passed = {name: last for name, last in self._passed.items() if now - last[2] < LINGER}
        if all(now - at >= QUIET for at in self._named.values()):
            self._tell(self._catch_up.heirs.cut_off)

    def greet(self, broker: BrokerRef) -> None:
        """Tell a broker with a new link session who is cut off: it may have joined since then."""
        names = [name for name, at in self._named.items() if self._port.now - at < LINGER]
        if names := (self._catch_up.heirs.cut_off or names)[:MOST_CUT_OFF]:
            self._port.send(broker, CutOff(names))

    def _fresh(self, name: str) -> bool:
        return self._port.now - self._named.get(name, -math.inf) >= QUIET

    def _tell(self, names: list[str]) -> None:
        for first in range(0, len(names), MOST_CUT_OFF):
            self._serial += 1
            self._pass_on(CutOff(names[first : first + MOST_CUT_OFF], self._port.me, self._serial), self._port.me)

    def _pass_on(self, frame: CutOff, sender: BrokerRef) -> None:
        self._named |= dict.fromkeys(frame.names, self._port.now)
        for broker in dict.fromkeys(self._linked()):
            if broker not in (sender, frame.origin):
                self._port.send(broker, frame)

    def _on_cut_off(self, sender: BrokerRef, frame: CutOff) -> None:
        names = {*frame.names} - {self._port.me.name}
        if names:
            self._catch_up.lost_elsewhere(names)
        if (origin := frame.origin) is None:
            return
        number = origin.incarnation, frame.serial, self._port.now
        if number[:2] > self._passed.get(origin.name, (0, 0))[:2] and any(map(self._fresh, frame.names)):
            self._passed[origin.name] = number
            self._pass_on(frame, sender)
