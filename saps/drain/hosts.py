"""Where clients and sessions of a broker that is drained go: to brokers that can take them, those of its site first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from saps.config.address import Address
from saps.drain.values import Host, Kind
from saps.overlay.ring.keys import BrokerRef

LONGEST = 300
"""Characters of an address."""
REFERENCES = 3
"""Addresses in one Server Reference: the client may try them in turn."""


class Hosts:
    """What the other brokers have answered."""

    def __init__(self) -> None:
        self.known = False
        """They have been asked, and have answered."""
        self._hosts: list[Host] = []
        self._near: set[str] = set()
        """Those of the same cluster."""
        self._given: dict[str, int] = {}
        """By broker: sessions offered since it was asked."""
        self._refusals: dict[str, set[str]] = {}
        """By client: the brokers that do not take its session."""
        self._turn = 0
        self._own: Collection[str] = ()

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._hosts)

    @property
    def able(self) -> list[Host]:
        """The brokers that can take sessions over."""
        return [host for host in self._hosts if host.room]

    def learn(self, values: Iterable[Any], me: BrokerRef, addresses: Collection[str] = ()) -> None:
        """The answers of all brokers; those that are drained themselves have answered None. Nobody is sent to this
        broker's own `addresses`: others may have them too, behind one load balancer."""
        found = []
        for value in values:
            try:
                host = msgspec.convert(value, Host)
            except msgspec.ValidationError:
                continue
            if host.broker != me.name:
                found.append(msgspec.structs.replace(host, mqtt=_address(host.mqtt), mqtts=_address(host.mqtts)))
        self._hosts = sorted(found, key=lambda host: (host.cluster != me.cluster, host.broker))
        self._near = {host.broker for host in found if host.cluster == me.cluster}
        self._given = {}
        self._own = addresses
        self.known = True

    def reference(self, kind: Kind) -> str:
        """Addresses for a client that is connected in this way, separated by spaces (MQTT 5.0, section 4.11): of the
        brokers of this site, in turns, then of others. Empty if none is known."""
        if not self.able or not kind:
            return ""
        self._turn += 1
        near = [host for host in self._hosts if host.broker in self._near]
        far = [host for host in self._hosts if host.broker not in self._near]
        ordered = [*_turned(near, self._turn), *_turned(far, self._turn)]
        addresses = dict.fromkeys(host.mqtts if kind == "mqtts" else host.mqtt for host in ordered)
        return " ".join([address for address in addresses if address and address not in self._own][:REFERENCES])

    def choose(self, client: str) -> str | None:
        """The broker to offer a client's session to: of those that have not refused it the one with the fewest, of
        this site if there is one there. None if all have: they are asked anew, later."""
        refused = self._refusals.get(client, set())
        able = [host for host in self.able if host.room > self._given.get(host.broker, 0)]
        able = [host for host in able if host.broker not in refused]
        near = [host for host in able if host.broker in self._near]
        if not able:
            self._refusals.pop(client, None)
            return None
        chosen = min(near or able, key=lambda host: (host.sessions + self._given.get(host.broker, 0), host.broker))
        self._given[chosen.broker] = self._given.get(chosen.broker, 0) + 1
        return chosen.broker

    def refused(self, client: str, broker: str) -> None:
        """A broker does not take a client's session."""
        self._refusals.setdefault(client, set()).add(broker)


def _turned(hosts: list[Host], turn: int) -> list[Host]:
    first = turn % len(hosts) if hosts else 0
    return [*hosts[first:], *hosts[:first]]


def _address(text: str) -> str:
    """What another broker says is an address, if it is one that clients can be told."""
    try:
        return str(Address.parse(text)) if text.isascii() and len(text) <= LONGEST else ""
    except ValueError:
        return ""
