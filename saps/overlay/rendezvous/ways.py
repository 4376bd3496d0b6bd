"""Divides the members of a topic among the branches along which its publications leave this broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.port import Port
from saps.overlay.rendezvous.designed import Designs
from saps.overlay.rendezvous.domains import Domains
from saps.overlay.rendezvous.streams import Stream, Way
from saps.overlay.ring.keys import BrokerRef

WAYS = 16_384
"""Most cached ways, which topics with the same members share; beyond that the cache starts anew."""


class Ways:
    """The ways of one broker: along the key order, a designed overlay, or from one OpenFlow domain to another."""

    def __init__(self, port: Port, designs: Designs | None) -> None:
        self._port = port
        self.designs = designs
        """The designed overlay, in a mesh that has one."""
        self.domains = Domains()
        """The OpenFlow domains of the mesh; the same at all brokers."""
        self._urgent: Callable[[str], bool] | None = None
        self._known: dict[Hashable, Way] = {}

    def prioritise(self, urgent: Callable[[str], bool]) -> None:
        """Have these topics leave by the express lane (`saps.overlay.delivery.express`), in frames of their own."""
        self._urgent = urgent

    def is_urgent(self, topic: str) -> bool:
        """Return whether a topic leaves by the express lane."""
        return self._urgent is not None and self._urgent(topic)

    def find(self, stream: Stream, members: Sequence[BrokerRef]) -> None:
        """Set the way of a stream to its members, which are sorted by place. Topics that may leave in one frame share
        one object; a topic with an OpenFlow tree, or with members in other domains, has its own."""
        topic = stream.topic
        me, domains = self._port.me, self.domains
        stream.abroad = any(domains.foreign(me, ref) for ref in members) if domains else False
        if stream.tree is not None or stream.abroad:
            stream.way = Way(self.divide(topic, [ref for ref in members if ref not in stream.served]))
            return
        shape = None
        if self.designs is not None:
            branches, shape = self.designs.divide(topic, members), self.designs.trees.get(topic)
        else:
            branches = self.divide(topic, members)
        urgent = self.is_urgent(topic)
        name = tuple(branches), id(shape), urgent
        way = self._known.get(name)
        if way is None:
            if len(self._known) >= WAYS:
                self._known.clear()
            way = self._known[name] = Way(branches)
        stream.way = way

    def divide(self, topic: str, members: Sequence[BrokerRef]) -> list[Branch]:
        """Return the branches to some members of a topic, which are sorted by place."""
        if self.domains:
            return self.domains.divide(self._port.me, topic, members, self._port.order)
        return divide(self._port.me, members, self._port.order)
