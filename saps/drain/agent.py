"""The agent through which brokers coordinate drains: ``!drain`` at every broker, called by the broker's name.

An agent needs no frame of its own: a broker of an older version answers that it has no such agent, and is then offered
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from saps.agents.api import remote, repeatable
from saps.drain.adoption import Adopter
from saps.drain.values import Drained, Host, Offer, Order

DRAIN = "drain"
"""Name of the agent at each broker; it needs no key in the overlay."""


class DrainAgent:
    """Answers calls about drains for one broker."""

    def __init__(
        self,
        host: Callable[[], Host | None],
        adopter: Adopter,
        connected: Callable[[str], bool],
        obey: Callable[[Order], None],
        progress: Callable[[], Drained],
    ) -> None:
        """`host` returns the room that this broker offers, or None while it is drained itself; `connected`, whether a
        client is connected here; `progress`, the state of the drain. `obey` carries out an operator's order."""
        self._obey = obey
        self._progress = progress
        self._host = host
        self._adopter = adopter
        self._connected = connected

    @remote
    def host(self) -> Any:
        """Return this broker's `Host` as plain values, or None while it is drained itself."""
        return msgspec.to_builtins(self._host())

    @remote
    def obey(self, order: Any) -> Any:
        """Start or cancel a drain for an operator at another broker. Returns a `Drained` as plain values; raises
        `ValueError` for an invalid number."""
        wanted = msgspec.convert(order, Order)
        if (fault := wanted.fault()) is not None:
            raise ValueError(f"{fault} is not a number that can be used")
        self._obey(wanted)
        return self.progress()

    @repeatable
    def progress(self) -> Any:
        """Return the progress of the drain, a `Drained` as plain values."""
        return msgspec.to_builtins(self._progress())

    @remote
    def adopt(self, offers: list[Any]) -> Any:
        """Adopt the offered sessions. Returns for each an empty text, or the reason for refusing it."""
        host = self._host()
        room = host.room if host is not None else 0
        answers = []
        for offer in msgspec.convert(offers, list[Offer]):
            answers.append(self._adopter.adopt(offer) if room > 0 else "no room")
            room -= not answers[-1]
        return answers

    @remote
    def connected(self, clients: list[str]) -> Any:
        """Return those of these clients that are connected here."""
        return [client for client in clients if self._connected(client)]
