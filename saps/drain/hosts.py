"""Chooses the brokers that take the clients and sessions of a draining broker, those of its own cluster first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from saps.config.address import Address
from saps.drain.values import Host, Kind
from saps.overlay.ring.keys import BrokerRef

LONGEST = 300
"""Most characters of an address."""
REFERENCES = 3
"""Most addresses in one Server Reference (MQTT 5.0, 4.11); the client may try them in turn."""


class Hosts:
    """The other brokers, by their latest answers."""

    def __init__(self) -> None:
        self.known = False
        """Whether the other brokers have answered."""
        self._hosts: list[Host] = []
        self._near: set[str] = set()
        """Names of the brokers in the same cluster."""
        self._given: dict[str, int] = {}
        """By broker: sessions offered since its last answer."""
        self._refusals: dict[str, set[str]] = {}
        """By client: the brokers that have refused its session."""
        self._turn = 0
        self._own: Collection[str] = ()

    @property
    def number(self) -> int:
        """The number of other brokers."""
        return len(self._hosts)

    @property
    def able(self) -> list[Host]:
        """The brokers that have room for sessions."""
        return [host for host in self._hosts if host.room]

    def learn(self, hosts: Iterable[Host], me: BrokerRef, addresses: Collection[str] = ()) -> None:
        """Take in the answers of all brokers that are not drained themselves. No client is sent to this
        broker's own `addresses`, which other brokers behind the same load balancer may share."""
        found = [
            msgspec.structs.replace(host, mqtt=_address(host.mqtt), mqtts=_address(host.mqtts))
            for host in hosts
            if host.broker != me.name
        ]
        self._hosts = sorted(found, key=lambda host: (host.cluster != me.cluster, host.broker))
        self._near = {host.broker for host in found if host.cluster == me.cluster}
        self._given = {}
        self._own = addresses
        self.known = True

    def reference(self, kind: Kind) -> str:
        """Return the Server Reference for a client with this kind of connection: addresses separated by spaces (MQTT
        5.0, 4.11), of brokers in this cluster in rotation, then of others. Empty if none is known."""
        if not self.able or not kind:
            return ""
        self._turn += 1
        near = [host for host in self._hosts if host.broker in self._near]
        far = [host for host in self._hosts if host.broker not in self._near]
        ordered = [*_turned(near, self._turn), *_turned(far, self._turn)]
        addresses = dict.fromkeys(host.mqtts if kind == "mqtts" else host.mqtt for host in ordered)
        return " ".join([address for address in addresses if address and address not in self._own][:REFERENCES])

    def choose(self, client: str) -> str | None:
        """Choose the broker to offer a client's session to: the one with the fewest sessions among those that have not
        refused it, in this cluster if possible. Returns None if all have refused; then all may be tried again."""
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
        """Record that a broker has refused a client's session."""
        self._refusals.setdefault(client, set()).add(broker)


def _turned(hosts: list[Host], turn: int) -> list[Host]:
    first = turn % len(hosts) if hosts else 0
    return [*hosts[first:], *hosts[:first]]


def _address(text: str) -> str:
    """Return an address that another broker has sent if clients can be told it, else an empty text."""
    try:
        return str(Address.parse(text)) if text.isascii() and len(text) <= LONGEST else ""
    except ValueError:
        return ""
