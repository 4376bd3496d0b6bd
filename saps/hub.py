"""A broker's local half: it joins the subscribers of this broker with each other and with the mesh.

A publication goes to every matching local subscriber once, and to the mesh if somebody elsewhere may want it.
Frontends (MQTT, Web) and in-process agents stand on one side, `saps.mesh.Mesh` on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast

from saps.mesh import Alone, Mesh, Recalled, TopicRoute
from saps.messages import NOBODY, Message, MessageRun, Reached, stamp_of
from saps.plain import Encoded
from saps.priority import Priorities
from saps.publication import Burst as Burst
from saps.publication import Publication as Publication
from saps.publication import Share, Turn
from saps.retained_messages import RetainedMessages
from saps.statistics import Statistics, TopicCount
from saps.subscriptions import Group, Subscription, SubscriptionIndex, Target
from saps.topics import is_wildcard, shared

if TYPE_CHECKING:
    from saps.agents.user import PublisherAgent, SubscriberAgent

MAX_ROUTES = 65_536
"""Topics whose route is kept at hand (about 0.5 KiB each); beyond it the cache starts anew."""
LONGEST_KEPT = 512
"""Bytes of the longest topic whose route is: 65,536 topics of 64 KiB would be 4 GiB that any client can fill."""
MAX_LONE = 2048
"""Beginnings of lone publications that are kept for a wire format; beyond it that cache starts anew."""


def _nothing() -> None:
    pass


def is_reserved(topic: str) -> bool:
    """True for the topics that only the broker itself publishes to (4.7.2)."""
    return topic.startswith("$SYS/") or topic == "$SYS"


def is_own(topic_filter: str) -> bool:
    """True for the filters that match reserved topics alone: each broker tells its own clients about itself, so the
    mesh need not know of them."""
    parts = shared(topic_filter)
    return is_reserved(topic_filter if parts is None else parts.topic_filter)


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

    __slots__ = ("count", "groups", "mesh", "numbered", "relays", "targets", "topic", "wires")

    def __init__(
        self,
        topic: str,
        mesh: TopicRoute,
        targets: tuple[Target, ...],
        count: TopicCount | None = None,
        groups: tuple[Group, ...] = (),
    ) -> None:
        self.topic = topic
        self.count = count
        """Where its messages are counted, if they are."""
        self.mesh = mesh
        self.targets = targets
        self.groups = groups
        """The shared subscriptions with members here."""
        self.relays = cast("list[Relay]", [target.agent for target in targets])
        wires = {t.agent.wire if t.own is t and not t.identifiers else 0 for t in targets}
        self.wires: tuple[int, ...] = (4, 5) if not wires else tuple(wires) if len(wires) == 1 else ()
        if groups:
            self.wires = ()
        """The wire formats in which a plain QoS 0 packet may be relayed verbatim to all of `relays`."""
        self.numbered = bool(targets) and all(target.qos and not target.agent.stored for target in targets)
        """A QoS 1 packet may be, too, but for its packet identifier; and there are subscribers."""


def _alike(routes: list[Route]) -> Iterator[tuple[int, int]]:
    """Where those that follow each other have the same subscribers: the first of them, and the one behind the last."""
    begin, targets = 0, routes[0].targets
    for number, route in enumerate(routes):
        if route.targets is not targets:
            yield begin, number
            begin, targets = number, route.targets
    yield begin, len(routes)


class Hub:
    """The local half of a broker (a `saps.mesh.Local`). Synchronous; callbacks may run before a call returns."""

    def __init__(self, mesh: Mesh | None = None, clock: Callable[[], float] = lambda: 0.0) -> None:
        """`clock` gives seconds, for message expiry; the driver of a frontend sets it."""
        self.clock = clock
        self.index = SubscriptionIndex()
        self.retained = RetainedMessages(self._time, lambda topic: bool(self.index.targets(topic)))
        self.agents: dict[str, PublisherAgent | SubscriberAgent] = {}
        """The live user agents by name."""
        self.routes: dict[bytes, Route] = {}
        """Routes by the topic's UTF-8 bytes; only valid topic names that clients may publish to are in it."""
        self.lone: dict[int, dict[bytes, tuple[int, Route]]] = {4: {}, 5: {}}
        """By wire format: of encoded publications that came by themselves (`remember`), by their first bytes, the size
        and the route of all such. Forgotten with any route, by emptying: a frontend may hold on to these."""
        self.published = 0
        """Messages published at this broker."""
        self.received = 0
        """Messages that came from other brokers."""
        self.delivered = 0
        """Copies handed to local subscribers."""
        self.statistics: Statistics | None = None
        """Counts by topic, if they are wanted (`count`)."""
        self.priorities: Priorities | None = None
        """Which topics go first between brokers, if any do."""
        self._receives: Callable[[str], bool] | None = None
        """Says if subscribers here may get a topic; None: all of them (`obey`)."""
        self._mesh: Mesh = mesh if mesh is not None else Alone()
        self._gathering = False
        self._gathered: list[MessageRun] = []
        """What has come from other brokers with one quality of service, for the same subscribers."""
        self._gathered_for: tuple[Target, ...] = ()

    @property
    def mesh(self) -> Mesh:
        return self._mesh

    @mesh.setter
    def mesh(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._forget_all_routes()

    def count(self, topics: int) -> Statistics:
        """From now on count by topic, in a table of so many."""
        self.statistics = Statistics(topics, self._forget_route)
        self._forget_all_routes()
        return self.statistics

    def obey(self, receives: Callable[[str], bool] | None) -> None:
        """From now on subscribers here get messages only of topics that may be received, whichever way they come."""
        self._hand_out()
        self._receives = receives
        self._forget_all_routes()

    def _may_get(self, topic: str) -> bool:
        return self._receives is None or self._receives(topic)

    # ---- subscriptions

    def subscribe(self, agent: SubscriberAgent, subscription: Subscription, done: Callable[[], None]) -> None:
        """Subscribe the agent. `done` runs once no message published later, anywhere in the mesh, can be missed."""
        self._hand_out()
        self._count_members(subscription.filter, before=True)
        self.index.add(agent, subscription)
        self._count_members(subscription.filter)
        self._forget_routes(subscription.filter)
        if is_own(subscription.filter):
            done()
            return
        if subscription.retain_handling < 2 and shared(subscription.filter) is None:
            self.retained.begin(agent, subscription.filter)
            done = partial(self._recall, subscription.filter, done)
        self._mesh.subscribe(subscription.filter, done)

    def unsubscribe(self, agent: SubscriberAgent, topic_filter: str) -> None:
        """End the agent's subscription with this filter, if there is one."""
        self._hand_out()
        self._count_members(topic_filter, before=True)
        last = self.index.remove(agent, topic_filter)
        self._count_members(topic_filter)
        self._forget_routes(topic_filter)
        self.retained.end(agent, topic_filter)
        if last and not is_own(topic_filter):
            self._mesh.unsubscribe(topic_filter)
            if not isinstance(self._mesh, Alone):
                self.retained.drop(topic_filter)

    def forget_agent_routes(self, agent: SubscriberAgent) -> None:
        """To be called when the agent's `wire` changed."""
        for topic_filter in agent.subscriptions:
            self._forget_routes(topic_filter)

    def _count_members(self, topic_filter: str, before: bool = False) -> None:
        """The subscribers of a filter are about to change (`before`), or have; with wildcards the routes tell."""
        if self.statistics is not None and not is_wildcard(topic_filter):
            count = self.statistics.of(topic_filter)
            if not before or count.subscribers < 0:
                count.members(len(self.index.targets(topic_filter)))

    def _forget_routes(self, topic_filter: str) -> None:
        if is_wildcard(topic_filter):
            self._forget_all_routes()
        else:
            self._forget_route(topic_filter)

    def _forget_route(self, topic: str) -> None:
        self.routes.pop(topic.encode(), None)
        self._forget_lone()

    def _forget_all_routes(self) -> None:
        self.routes.clear()
        self._forget_lone()

    def _forget_lone(self) -> None:
        for known in self.lone.values():
            known.clear()

    # ---- publications

    def route(self, topic: bytes) -> Route:
        """The route of a valid topic name, given as UTF-8; from the cache, or built now."""
        route = self.routes.get(topic)
        if route is None:
            name = topic.decode()
            allowed = self._may_get(name)
            targets = self.index.targets(name) if allowed else ()
            count = self.statistics.of(name) if self.statistics is not None else None
            if count is not None:
                count.members(len(targets))
            route = Route(name, self._mesh.route(name), targets, count, self.index.groups(name) if allowed else ())
            if len(self.routes) >= MAX_ROUTES:
                self._forget_all_routes()
            if len(topic) <= LONGEST_KEPT and not is_reserved(name):
                self.routes[topic] = route
        return route

    def remember(self, wire: int, beginning: bytes, size: int, route: Route) -> None:
        """A publication of `size` bytes came by itself, to a topic whose kept route is `route`; and so is, in this wire
        format, whatever is of that size and begins so."""
        known = self.lone[wire]
        if len(known) >= MAX_LONE:
            known.clear()
        known[beginning] = size, route

    def publish(
        self, message: Message, sender: SubscriberAgent | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """Publish a message at this broker. `sender` is the subscribing side of its publisher, for no-local.

        `done` gets the number of subscribers reached in the whole mesh; with QoS 1 or 2 only when all brokers have it.
        """
        route = self.route(message.topic.encode())
        publication = self.publication(message)
        matched = self.spread(route, publication, sender)
        answer = None if done is None else lambda r: done(matched + r.subscribers)
        self.forward(route, publication.message, answer)

    def publication(self, message: Message) -> Publication:
        """The message, published here, with its deadline if it has one, and stamped if it is to be retained."""
        return self._publication(self._mesh.stamp(message) if message.retain else message)

    def _publication(self, message: Message) -> Publication:
        properties = message.properties
        if properties is None or properties.message_expiry is None:
            return Publication(message)
        return Publication(message, self.clock() + properties.message_expiry)

    # ---- retained messages

    def retained_for(self, topic_filter: str, agent: SubscriberAgent | None = None) -> list[Publication]:
        """The retained messages a new subscription with this filter gets, once it is done. `agent`: whose subscription
        it is; it does not get again what it was sent, as it was published, since it subscribed."""
        found = self.retained.matching(topic_filter, agent)
        return [each for each in found if self._may_get(each.message.topic)] if self._receives is not None else found

    def kept(self, message: Message) -> None:
        """A retained message published here is kept in the mesh: here it stays only where it is subscribed."""
        self.retained.drop(message.topic)

    def _recall(self, topic_filter: str, done: Callable[[], None]) -> None:
        """A filter has been taken up by the mesh: find what is retained elsewhere."""

        def found(recalled: Sequence[Recalled]) -> None:
            self.retained.recalled(recalled, lambda message: self._publication(message).expires)
            done()

        self._mesh.recall(topic_filter, found)

    def _time(self) -> float:
        return self.clock()

    # ---- wills

    def entrust(self, client: str, will: Message | None, delay: float = 0.0) -> None:
        """The will of a client, None if it is void: another broker publishes it, after `delay` seconds, if this one
        dies."""
        self._mesh.entrust(client, will, delay)

    def connected(self, client: str) -> bool:
        """Is this client connected here?"""
        agent = self.agents.get(f"{client}/sub")
        return agent is not None and agent.present

    def bequeath(self, will: Message) -> None:
        """Publish the will of a client of a broker that has died."""
        self.publish(will)

    # ---- publishing

    def spread(self, route: Route, publication: Publication, sender: SubscriberAgent | None) -> int:
        """The local half of `publish`: retain if asked to, and deliver here. Returns how many subscribers matched."""
        self.published += 1
        count = route.count
        if count is not None:
            count.messages += 1
            count.bytes += len(publication.message.payload)
            if count.last is not sender:
                count.by(sender)
        if publication.message.retain:
            self.retained.published(publication)
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
        return matched + self._share(route, publication) if route.groups else matched

    def spread_burst(self, route: Route, burst: Burst, sender: SubscriberAgent | None) -> int:
        """`spread` for a burst that is not retained. Returns how many subscribers matched each publication."""
        return self.spread_several([route] * len(burst.runs), burst.runs, sender)[0]

    def spread_several(self, routes: list[Route], runs: list[MessageRun], sender: SubscriberAgent | None) -> list[int]:
        """`spread_burst` for runs of one quality of service, each with its route: those that follow each other and have
        the same subscribers go to them as one burst. Returns how many subscribers matched, for each run."""
        matched: list[int] = []
        for route, run in zip(routes, runs, strict=True):
            self.published += len(run.payloads)
            if (count := route.count) is not None:
                count.messages += len(run.payloads)
                count.bytes += sum(map(len, run.payloads))
                if count.last is not sender:
                    count.by(sender)
        for begin, end in _alike(routes):
            burst = Burst(runs[begin:end])
            here = self._hand_burst(routes[begin].targets, burst, sender)
            matched += [here + len(route.groups) for route in routes[begin:end]]
            if any(route.groups for route in routes[begin:end]):
                publications = iter(burst.publications)
                for route, run in zip(routes[begin:end], runs[begin:end], strict=True):
                    for publication in islice(publications, len(run)):
                        self._share(route, publication)
        return matched

    def _hand_burst(self, targets: tuple[Target, ...], burst: Burst, sender: SubscriberAgent | None) -> int:
        """Hand a burst that was published here to its subscribers. Returns how many they are."""
        matched = 0
        for target in targets:
            agent = target.agent
            if agent is sender:
                if target.own is None:
                    continue
                target = target.own
            agent.deliver_burst(burst, target)
            matched += 1
        self.delivered += matched * len(burst)
        return matched

    def relay(self, route: Route, packets: bytes, count: int, at_once: bool) -> None:
        """`spread` for `count` encoded publications of QoS 0, in a wire format that is among the route's `wires`.

        `at_once`: nothing follows that could be written together with them.
        """
        if (counted := route.count) is not None:
            counted.messages += count
            counted.bytes += len(packets) - count * counted.header
        for agent in route.relays:
            agent.relay(packets, count, at_once)
        self.published += count
        self.delivered += count * len(route.relays)

    def relay_several(
        self,
        routes: list[Route],
        packets: bytes,
        pos: int,
        payloads: list[int],
        ends: list[int],
        sender: SubscriberAgent | None,
    ) -> None:
        """`relay` for encoded publications that follow each other from `pos` on, in a wire format that is among the
        `wires` of all their routes: those that have the same subscribers are relayed as one.

        Of each is given its route, where its payload begins and where it ends.
        """
        self._relay_alike(routes, packets, pos, ends)
        for route, payload, end in zip(routes, payloads, ends, strict=True):
            if (count := route.count) is not None:
                if count.last is not sender:
                    count.by(sender)
                count.messages += 1
                count.bytes += end - payload
        self.published += len(routes)

    def _relay_alike(self, routes: list[Route], packets: bytes, pos: int, ends: list[int]) -> None:
        for begin, end in _alike(routes):
            start, pos = pos, ends[end - 1]
            self._relay_to(routes[begin].relays, packets[start:pos], end - begin)

    def _relay_to(self, relays: list[Relay], packets: bytes, count: int) -> None:
        for agent in relays:
            agent.relay(packets, count)
        self.delivered += count * len(relays)

    def relay_numbered(self, route: Route, packet: Any, size: int = 0) -> None:
        """`spread` for a publication of QoS 1, in a wire format that is among the `wires` of a `numbered` route.

        `packet` is the encoded publication, in the frontend's own terms, with a payload of `size` bytes. Nothing
        follows that could be written with it.
        """
        if (count := route.count) is not None:
            count.messages += 1
            count.bytes += size
        for agent in route.relays:
            agent.relay_numbered(packet)
        self.published += 1
        self.delivered += len(route.relays)

    def forward(self, route: Route, message: Message, done: Callable[[Reached], None] | None) -> None:
        """The other half of `publish`: hand the message to the mesh, unless it knows that nobody wants it."""
        if route.mesh.remote or message.retain:
            self._mesh.publish(message, done)
        else:
            route.mesh.used = True
            if done is not None:
                done(NOBODY)

    def forward_run(self, route: Route, run: MessageRun) -> None:
        """`forward` for a run of QoS 0."""
        if route.mesh.remote:
            self._mesh.publish_run(run, None)
        else:
            route.mesh.used = True

    def forward_stretch(self, stretch: Encoded) -> None:
        """`forward` for a stretch, of which the mesh may want every topic."""
        self._mesh.publish_stretch(stretch)

    # ---- shared subscriptions

    def _share(self, route: Route, publication: Publication) -> int:
        """Give a message published here to one member of each group with members here. Returns how many groups."""
        for group in route.groups:
            if not self._offer(group, publication, False, _nothing):
                self._share_elsewhere(group.name, publication.message, _nothing)
        return len(route.groups)

    def _share_elsewhere(self, topic_filter: str, message: Message, settled: Callable[[], None]) -> None:
        """No member is ready here."""
        if isinstance(self._mesh, Alone):
            if not self.take(topic_filter, message, True, settled):
                settled()
        else:
            self._mesh.share(topic_filter, message, settled)

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Give a message to one member of a shared subscription: `saps.mesh.Local.take`."""
        group = self.index.group(topic_filter) if self._may_get(message.topic) else None
        return group is not None and self._offer(group, self._publication(message), forced, settled)

    def redeliver(self, publication: Publication) -> None:
        """The member that had this publication has gone before it acknowledged it: it is another one's turn."""
        share = publication.share
        if share is not None and not self.take(share.topic_filter, publication.message, False, share.settled):
            self._share_elsewhere(share.topic_filter, publication.message, share.settled)

    def _offer(self, group: Group, publication: Publication, forced: bool, settled: Callable[[], None]) -> bool:
        """Give the message to the member whose turn it is."""
        message = publication.message
        target = group.pick(message.topic, away=forced)
        if target is None:
            return False
        self.delivered += 1
        if message.qos and target.qos:
            target.agent.deliver(Turn(message, publication.expires, Share(group.name, settled)), target)
        else:
            target.agent.deliver(Publication(message, publication.expires), target)
            settled()
        return True

    # ---- from other brokers

    def deliver(self, message: Message) -> int:
        """A message from another broker, for the local subscribers. Returns how many matched."""
        self.received += 1
        route = self.route(message.topic.encode())
        if (count := route.count) is not None:
            count.received += 1
            count.received_bytes += len(message.payload)
        self.delivered += len(route.targets)
        if self._gathering and message.properties is None and not message.retain:
            self._gather_for(route.targets, message.qos)
            self._gathered.append(MessageRun.of(message))
        else:
            self._hand_out()
            publication = self._publication(message)
            if message.retain and stamp_of(message):
                self.retained.published(publication)
            for target in route.targets:
                if not (message.retain and self.retained.was_given(target.agent, message)):
                    target.agent.deliver(publication, target)
        return len(route.targets)

    def deliver_run(self, topic: str, qos: int, payloads: list[bytes]) -> int:
        """`deliver` for plain messages that follow each other. Returns how many subscribers matched each."""
        route = self.route(topic.encode())
        count = len(payloads)
        self.received += count
        if (counted := route.count) is not None:
            counted.received += count
            counted.received_bytes += sum(map(len, payloads))
        self.delivered += len(route.targets) * count
        self._gather_for(route.targets, qos)
        self._gathered.append(MessageRun(topic, qos, payloads))
        if not self._gathering:
            self._hand_out()
        return len(route.targets)

    def deliver_stretch(self, stretch: Encoded) -> None:
        """`deliver` for the messages of a stretch: as they came, if all their subscribers take them so."""
        distinct = [self.route(topic.encode()) for topic in stretch.topics]
        if not all(stretch.version in route.wires for route in distinct):
            for run in stretch.runs():
                self.deliver_run(run.topic, run.qos, run.payloads)
            return
        self._hand_out()
        if stretch.which is None:
            self._relay_to(distinct[0].relays, stretch.packets, len(stretch))
        else:
            self._relay_alike([distinct[number] for number in stretch.which], stretch.packets, 0, stretch.ends)
        self.received += len(stretch)
        if self.statistics is not None:
            for route, count, size in zip(distinct, stretch.counts, stretch.bytes_by_topic, strict=True):
                if (counted := route.count) is not None:
                    counted.received += count
                    counted.received_bytes += size - count * counted.header

    def deliver_several(self, topics: list[str], which: list[int], payloads: list[bytes]) -> list[int]:
        """`deliver` for plain messages of QoS 1 that follow each other, each to the topic of that number. Returns how
        many subscribers each topic has."""
        distinct = [self.route(topic.encode()) for topic in topics]
        runs = [MessageRun(topics[number], 1, [payload]) for number, payload in zip(which, payloads, strict=True)]
        routes = [distinct[number] for number in which]
        if self.statistics is not None:
            for route, payload in zip(routes, payloads, strict=True):
                if (counted := route.count) is not None:
                    counted.received += 1
                    counted.received_bytes += len(payload)
        for begin, end in _alike(routes):
            targets = routes[begin].targets
            self._gather_for(targets, 1)
            self._gathered += runs[begin:end]
            self.delivered += len(targets) * (end - begin)
        self.received += len(runs)
        if not self._gathering:
            self._hand_out()
        return [len(route.targets) for route in distinct]

    def matching(self, topic: str) -> int:
        """How many local subscribers a message from another broker to `topic` has now."""
        return len(self.route(topic.encode()).targets)

    def gather(self) -> None:
        """Messages for `deliver` follow each other now: hand them to the subscribers in bursts, until `gathered`."""
        self._gathering = True

    def gathered(self) -> None:
        """Nothing more follows: what `gather` has held back is handed out before this returns."""
        self._gathering = False
        self._hand_out()

    def _gather_for(self, targets: tuple[Target, ...], qos: int) -> None:
        """A message for these subscribers comes: if it cannot go with what is gathered, hand that out."""
        gathered, before = self._gathered, self._gathered_for
        if gathered and (qos != gathered[0].qos or (targets is not before and targets != before)):
            self._hand_out()
        self._gathered_for = targets

    def _hand_out(self) -> None:
        """Hand the gathered messages to those who were their subscribers when they came."""
        targets, runs = self._gathered_for, self._gathered
        if not runs:
            return
        self._gathered_for, self._gathered = (), []
        if len(runs) == 1 == len(runs[0]):
            publication = Publication(runs[0].messages[0])
            for target in targets:
                target.agent.deliver(publication, target)
        else:
            burst = Burst(runs)
            for target in targets:
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
