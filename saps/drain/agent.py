"""The agent that brokers ask about each other's drains: ``!drain`` at every broker, called by way of its broker.

As an agent it needs no frame of its own: a broker of an older version answers that it has none, and is not asked to
take anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from saps.agents.api import remote, repeatable
from saps.drain.adoption import Adopter
from saps.drain.values import Drained, Host, Offer, Order

DRAIN = "drain"
"""Name of each broker's agent; it costs the overlay no key."""


class DrainAgent:
    """Answers for one broker."""

    def __init__(
        self,
        host: Callable[[], Host | None],
        adopter: Adopter,
        connected: Callable[[str], bool],
        obey: Callable[[Order], None],
        progress: Callable[[], Drained],
    ) -> None:
        """`host`: what this broker offers; None: nothing, as it is drained itself. `connected`: is a client here?
        `obey`: carries out an operator's order."""
        self._obey = obey
        self._progress = progress
        self._host = host
        self._adopter = adopter
        self._connected = connected

    @remote
    def host(self) -> Any:
        """A `Host` as plain values, or None."""
        return msgspec.to_builtins(self._host())

    @remote
    def obey(self, order: Any) -> Any:
        """Begin or end a drain, for an operator at another broker: a `Drained` as plain values. Raises `ValueError`."""
        wanted = msgspec.convert(order, Order)
        if (fault := wanted.fault()) is not None:
            raise ValueError(f"{fault} is not a number that can be used")
        self._obey(wanted)
        return self.progress()

    @repeatable
    def progress(self) -> Any:
        """How far it is: a `Drained` as plain values."""
        return msgspec.to_builtins(self._progress())

    @remote
    def adopt(self, offers: list[Any]) -> Any:
        """Take over the sessions of these offers, if possible: for each why not, or an empty text."""
        host = self._host()
        room = host.room if host is not None else 0
        answers = []
        for offer in msgspec.convert(offers, list[Offer]):
            answers.append(self._adopter.adopt(offer) if room > 0 else "no room")
            room -= not answers[-1]
        return answers

    @remote
    def connected(self, clients: list[str]) -> Any:
        """Those of these clients that are connected here."""
        return [client for client in clients if self._connected(client)]
