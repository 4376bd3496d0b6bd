"""Reads the parts of a running broker for its status agent, on each request."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from saps.frontend.mqtt.totals import totals
from saps.frontend.web.mesh import report
from saps.frontend.web.mesh.status import MOST_TOPICS, Watched
from saps.operations.values import of_topics
from saps.overlay.delivery.tree import divide
from saps.overlay.rendezvous.streams import Phase
from saps.overlay.ring.keys import BrokerRef, place
from saps.topics import is_wildcard
from saps.version import __version__

if TYPE_CHECKING:
    from saps.broker.parts import Parts

LINKED_FRESH = 5.0
"""Seconds for which the list of linked brokers is cached."""
LOOKUPS = 500
"""Most topics whose subscribers are looked up for one report, at about 30 microseconds each. Topics with a known route
need no lookup."""


class BrokerWatch(Watched):
    """Reads the status of one broker."""

    def __init__(self, broker: Parts) -> None:
        self._broker = broker
        self._began = time.monotonic()
        self._linked: list[str] = []
        self._linked_until = 0.0
        self._looked = self._began
        self._written: dict[str, int] = {}

    @property
    def linked(self) -> list[str]:
        """The names of the brokers with overlay links to this one, at most `LINKED_FRESH` seconds old.

        The list is cached, since making it takes time linear in the number of keys."""
        now = time.monotonic()
        if now >= self._linked_until:
            self._linked = sorted({ref.name for ref in self._broker.mesh.node.graph.linked_brokers()})
            self._linked_until = now + LINKED_FRESH
        return self._linked

    def totals(self) -> tuple[int, int, int]:
        hub = self._broker.hub
        return hub.published, hub.received, hub.delivered

    def broker(self, rates: tuple[float, float, float]) -> report.Broker:
        broker, frontend = self._broker, self._broker.server.frontend
        found, hub = totals(frontend), broker.hub
        element = broker.ofm.element if broker.ofm is not None else None
        missed = broker.mesh.node.delivery.multicast.missed
        replicas = broker.mesh.node.replicas
        return report.Broker(
            name=broker.ref.name,
            cluster=broker.ref.cluster,
            address=broker.ref.address,
            web=[f"{host}:{port}" for host, port in (broker.web.addresses if broker.web is not None else ())],
            version=__version__,
            uptime=round(time.monotonic() - self._began, 1),
            clients=found.connected,
            sessions=found.connected + found.away,
            subscriptions=found.subscriptions,
            queued_bytes=frontend.queued.used,
            published=hub.published,
            received=hub.received,
            delivered=hub.delivered,
            dropped=found.dropped,
            published_rate=rates[0],
            received_rate=rates[1],
            delivered_rate=rates[2],
            held_by=sorted(broker.holders),
            links=self.linked,
            ofm=None if element is None else element.endpoint,
            topics=0,
            counts=False,
            missed_messages=missed.messages,
            missed_bytes=missed.bytes,
            missed_dropped=missed.dropped,
            traffic=self._traffic(),
            holders=len(replicas.source.in_sync),
            held=replicas.held,
            adopted=replicas.adopted,
            upstream=None if broker.upstream is None else "connected" if broker.upstream.connected else "away",
        )

    def _traffic(self) -> list[report.LinkTraffic]:
        """Return the traffic of each link, in order of names. Rates are averages since the last call."""
        now, links = time.monotonic(), self._broker.links.traffic()
        elapsed, before = now - self._looked, self._written
        self._looked, self._written = now, {name: written for name, (written, _) in links.items()}
        return [
            report.LinkTraffic(
                name,
                round(max(0, written - before.get(name, written)) / max(elapsed, 1e-3), 1),
                None if away is None else round(away, 6),
            )
            for name, (written, away) in sorted(links.items())
        ]

    def away(self) -> list[report.Away]:
        events = self._broker.mesh.node.port.members.away
        return [
            report.Away(
                name=event.broker.name,
                cluster=event.broker.cluster,
                address=event.broker.address,
                since=round(event.at, 3),
                incarnation=event.broker.incarnation,
            )
            for event in events
        ]

    def events(self) -> list[report.Event]:
        return [
            report.Event(
                at=round(event.at, 3),
                what=event.what.value,
                broker=event.broker.name,
                cluster=event.broker.cluster,
                incarnation=event.broker.incarnation,
            )
            for event in self._broker.mesh.node.port.members.events
        ]

    def forget(self, name: str) -> bool:
        node = self._broker.mesh.node
        node.delivery.catch_up.give_up(name)
        return node.port.members.forget(name)

    def values(self) -> dict[str, int]:
        """Return the values of the mesh for the ``$SYS`` tree, by topic suffix."""
        missed = self._broker.mesh.node.delivery.multicast.missed
        return {
            "saps/missed/messages": missed.messages,
            "saps/missed/bytes": missed.bytes,
            "saps/missed/dropped": missed.dropped,
        }

    def topics(self) -> dict[str, tuple[bool, int, int, int]]:
        node = self._broker.mesh.node
        priorities = self._broker.hub.priorities
        found: dict[str, tuple[bool, int, int, int]] = {}
        for topic, stream in islice(node.rendezvous.publishers.streams.items(), MOST_TOPICS):
            level = priorities.level(topic) or 0 if priorities is not None else 0
            publishes = stream.phase in (Phase.OPENING, Phase.OPEN)
            found[topic] = publishes, len(stream.members or ()), len(stream.served), level
        for registered in islice(node.rendezvous.subscriptions.registrations, MOST_TOPICS):
            topic = of_topics(registered)
            if topic not in found and not is_wildcard(topic):
                level = priorities.level(topic) or 0 if priorities is not None else 0
                found[topic] = False, 0, 0, level
        return found

    def counter(self) -> Callable[[str], int | None]:
        """Return a function that counts by the topic's route if it is known, else looks up the first `LOOKUPS` topics,
        without their readers' rights. A shared subscription with members here counts as one client."""
        hub = self._broker.hub
        left = LOOKUPS

        def clients(topic: str) -> int | None:
            nonlocal left
            route = hub.routes.known.get(topic)
            if route is not None:
                return len(route.targets) + len(route.groups)
            left -= 1
            return len(hub.index.targets(topic)) + len(hub.index.groups(topic)) if left >= 0 else None

        return clients

    def filters(self) -> list[str]:
        return sorted({of_topics(each) for each in self._broker.mesh.node.rendezvous.subscriptions.registrations})

    def divide(self, topic: str, members: list[str] | None) -> Any:
        """Return how this broker would divide a publication among members by ALM, and which an OFM tree serves.

        `members` are strings of the form ``name cluster``, or None for the topic's members as this broker knows them.
        Return ``known``, ``computed`` or ``unknown``, then each ALM child with its slice, then the served brokers."""
        node = self._broker.mesh.node
        stream = node.rendezvous.publishers.streams.get(topic)
        if members is None:
            if stream is None or stream.phase is not Phase.OPEN:
                return ["unknown", [], []]
            node.rendezvous.publishers.route(stream)
            branches = stream.way.branches
            served = [ref.name for ref in stream.served]
            return ["known", [[b.child.name, [ref.name for ref in b.slice]] for b in branches], served]
        refs = [BrokerRef(name, 0, "", cluster) for name, cluster in (entry.split(" ", 1) for entry in members)]
        run = [ref for ref in refs if ref.name != node.port.me.name]
        run.sort(key=lambda ref: (place(ref, node.port.order), ref.name))
        return [
            "computed",
            [[b.child.name, [r.name for r in b.slice]] for b in divide(node.port.me, run, node.port.order)],
            [],
        ]
