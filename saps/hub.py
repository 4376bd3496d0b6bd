"""A broker's local half: it joins the subscribers of this broker with each other and with the mesh.

A publication goes to every matching local subscriber once, and to the mesh if somebody elsewhere may want it.
Frontends (MQTT, Web) and in-process agents stand on one side, `saps.mesh.Mesh` on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from saps.mesh import Alone, Mesh, TopicRoute
from saps.messages import NOBODY, Message, Reached
from saps.retained import RetainedStore
from saps.subscriptions import Subscription, SubscriptionIndex, Target
from saps.topics import is_wildcard

if TYPE_CHECKING:
    from saps.agents.user import PublisherAgent, SubscriberAgent

MAX_ROUTES = 65_536
"""Topics whose route is kept at hand (about 0.5 KiB each); beyond it the cache starts anew."""


def is_reserved(topic: str) -> bool:
    """True for the topics that only the broker itself publishes to (4.7.2)."""
    return topic.startswith("$SYS/")


class Publication:
    """A message on its way to the local subscribers."""

    __slots__ = ("expires", "message", "packets", "retained")

    def __init__(self, message: Message, expires: float | None = None, retained: bool = False) -> None:
        self.message = message
        self.expires = expires
        """When it is too late to deliver it, on the hub's clock."""
        self.retained = retained
        """It is sent because of a new subscription, not because it was published just now."""
        self.packets: dict[Any, Any] | None = None
        """A frontend keeps here what several of its subscribers can share: the encoded packets."""


class Burst:
    """Publications with the same topic and quality of service, without properties, that come without a pause."""

    __slots__ = ("packets", "publications")

    def __init__(self, publications: list[Publication]) -> None:
        self.publications = publications
        self.packets: dict[Any, Any] = {}
        """As `Publication.packets`, for the burst as a whole."""


class Relay(Protocol):
    """What a subscriber agent with a `wire` can do beyond others: pass encoded packets on to its client.

    `at_once`: nothing follows that could be written together with them.
    """

    def relay(self, packets: bytes, count: int, at_once: bool = False) -> None:
        """Take `count` packets of QoS 0."""

    def relay_numbered(self, packet: Any) -> None:
        """Take one packet of QoS 1, in the frontend's own terms, at once."""


class Route:
    """What is known about one topic: who gets its messages here, and whether anyone wants them elsewhere.

    Do not keep a route beyond one publication: it is replaced when subscriptions change.
    """

    __slots__ = ("mesh", "numbered", "relays", "targets", "topic", "wires")

    def __init__(self, topic: str, mesh: TopicRoute, targets: tuple[Target, ...]) -> None:
        self.topic = topic
        self.mesh = mesh
        self.targets = targets
        self.relays = cast("list[Relay]", [target.agent for target in targets])
        wires = {t.agent.wire if t.own is t and not t.identifiers else 0 for t in targets}
        self.wires: tuple[int, ...] = (4, 5) if not wires else tuple(wires) if len(wires) == 1 else ()
        """The wire formats in which a plain QoS 0 packet may be relayed verbatim to all of `relays`."""
        self.numbered = bool(targets) and all(target.qos for target in targets)
        """A QoS 1 packet may be, too, but for its packet identifier; and there are subscribers."""


class Hub:
    """The local half of a broker (a `saps.mesh.Local`). Synchronous; callbacks may run before a call returns."""

    def __init__(self, mesh: Mesh | None = None, clock: Callable[[], float] = lambda: 0.0) -> None:
        """`clock` gives seconds, for message expiry; the driver of a frontend sets it."""
        self.clock = clock
        self.index = SubscriptionIndex()
        self.retained = RetainedStore()
        self.agents: dict[str, PublisherAgent | SubscriberAgent] = {}
        """The live user agents by name."""
        self.routes: dict[bytes, Route] = {}
        """Routes by the topic's UTF-8 bytes; only valid topic names that clients may publish to are in it."""
        self.published = 0
        """Messages published at this broker."""
        self.received = 0
        """Messages that came from other brokers."""
        self.delivered = 0
        """Copies handed to local subscribers."""
        self._mesh: Mesh = mesh if mesh is not None else Alone()
        self._gathering = False
        self._gathered: list[Publication] = []
        """Plain messages from other brokers, with the topic of `_gathered_for` and one quality of service."""
        self._gathered_for: Route | None = None

    @property
    def mesh(self) -> Mesh:
        return self._mesh

    @mesh.setter
    def mesh(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.routes.clear()

    # ---- subscriptions

    def subscribe(self, agent: SubscriberAgent, subscription: Subscription, done: Callable[[], None]) -> None:
        """Subscribe the agent. `done` runs once no message published later, anywhere in the mesh, can be missed."""
        self._hand_out()
        self.index.add(agent, subscription)
        self._forget_routes(subscription.filter)
        self._mesh.subscribe(subscription.filter, done)

    def unsubscribe(self, agent: SubscriberAgent, topic_filter: str) -> None:
        """End the agent's subscription with this filter, if there is one."""
        self._hand_out()
        last = self.index.remove(agent, topic_filter)
        self._forget_routes(topic_filter)
        if last:
            self._mesh.unsubscribe(topic_filter)

    def forget_agent_routes(self, agent: SubscriberAgent) -> None:
        """To be called when the agent's `wire` changed."""
        for topic_filter in agent.subscriptions:
            self._forget_routes(topic_filter)

    def _forget_routes(self, topic_filter: str) -> None:
        if is_wildcard(topic_filter):
            self.routes.clear()
        else:
            self.routes.pop(topic_filter.encode(), None)

    # ---- publications

    def route(self, topic: bytes) -> Route:
        """The route of a valid topic name, given as UTF-8; from the cache, or built now."""
        route = self.routes.get(topic)
        if route is None:
            name = topic.decode()
            route = Route(name, self._mesh.route(name), self.index.targets(name))
            if len(self.routes) >= MAX_ROUTES:
                self.routes.clear()
            if not is_reserved(name):
                self.routes[topic] = route
        return route

    def publish(
        self, message: Message, sender: SubscriberAgent | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """Publish a message at this broker. `sender` is the subscribing side of its publisher, for no-local.

        `done` gets the number of subscribers reached in the whole mesh; with QoS 1 or 2 only when all brokers have it.
        """
        route = self.route(message.topic.encode())
        matched = self.spread(route, self.publication(message), sender)
        self.forward(route, message, (lambda r: done(matched + r.subscribers)) if done is not None else None)

    def publication(self, message: Message) -> Publication:
        """The message with its deadline, if it has one."""
        properties = message.properties
        if properties is None or properties.message_expiry is None:
            return Publication(message)
        return Publication(message, self.clock() + properties.message_expiry)

    def retained_for(self, topic_filter: str) -> list[Publication]:
        """The retained messages a new subscription with this filter gets."""
        return self.retained.matching(topic_filter, self.clock())

    def spread(self, route: Route, publication: Publication, sender: SubscriberAgent | None) -> int:
        """The local half of `publish`: retain if asked to, and deliver here. Returns how many subscribers matched."""
        self.published += 1
        if publication.message.retain:
            self.retained.put(Publication(publication.message, publication.expires, retained=True))
        matched = 0
        for target in route.targets:
            agent = target.agent
            if agent is sender:
                if target.own is None:
                    continue
                target = target.own
            agent.deliver(publication, target)
            matched += 1
        self.delivered += matched
        return matched

    def spread_burst(self, route: Route, burst: Burst, sender: SubscriberAgent | None) -> int:
        """`spread` for a burst that is not retained. Returns how many subscribers matched each publication."""
        count = len(burst.publications)
        self.published += count
        matched = 0
        for target in route.targets:
            agent = target.agent
            if agent is sender:
                if target.own is None:
                    continue
                target = target.own
            agent.deliver_burst(burst, target)
            matched += 1
        self.delivered += matched * count
        return matched

    def relay(self, route: Route, packets: bytes, count: int, at_once: bool) -> None:
        """`spread` for `count` encoded publications of QoS 0, in a wire format that is among the route's `wires`.

        `at_once`: nothing follows that could be written together with them.
        """
        for agent in route.relays:
            agent.relay(packets, count, at_once)
        self.published += count
        self.delivered += count * len(route.relays)

    def relay_numbered(self, route: Route, packet: Any) -> None:
        """`spread` for a publication of QoS 1, in a wire format that is among the `wires` of a `numbered` route.

        `packet` is the encoded publication, in the frontend's own terms. Nothing follows that could be written with it.
        """
        for agent in route.relays:
            agent.relay_numbered(packet)
        self.published += 1
        self.delivered += len(route.relays)

    def forward(self, route: Route, message: Message, done: Callable[[Reached], None] | None) -> None:
        """The other half of `publish`: hand the message to the mesh, unless it knows that nobody wants it."""
        if route.mesh.remote:
            self._mesh.publish(message, done)
        else:
            route.mesh.used = True
            if done is not None:
                done(NOBODY)

    # ---- from other brokers

    def deliver(self, message: Message) -> int:
        """A message from another broker, for the local subscribers. Returns how many matched."""
        self.received += 1
        route = self.route(message.topic.encode())
        self.delivered += len(route.targets)
        if self._gathering and message.properties is None and not message.retain:
            gathered = self._gathered
            if gathered and (route is not self._gathered_for or message.qos != gathered[0].message.qos):
                self._hand_out()
            self._gathered_for = route
            self._gathered.append(Publication(message))
        else:
            self._hand_out()
            publication = self.publication(message)
            for target in route.targets:
                target.agent.deliver(publication, target)
        return len(route.targets)

    def gather(self) -> None:
        """Messages for `deliver` follow each other now: hand them to the subscribers in bursts, until `gathered`."""
        self._gathering = True

    def gathered(self) -> None:
        """Nothing more follows: what `gather` has held back is handed out before this returns."""
        self._gathering = False
        self._hand_out()

    def _hand_out(self) -> None:
        """Hand the gathered messages to those who were their subscribers when they came."""
        route, publications = self._gathered_for, self._gathered
        if route is None:
            return
        self._gathered_for, self._gathered = None, []
        if len(publications) == 1:
            for target in route.targets:
                target.agent.deliver(publications[0], target)
        else:
            burst = Burst(publications)
            for target in route.targets:
                target.agent.deliver_burst(burst, target)

    def describe(self) -> dict[str, int]:
        """Counts, for status pages and logs."""
        return {
            "agents": len(self.agents),
            "filters": len(self.index),
            "retained": len(self.retained),
            "published": self.published,
            "received": self.received,
            "delivered": self.delivered,
        }
