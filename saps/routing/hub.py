"""The hub of a broker: it connects local publishers and subscribers with each other and with the mesh.

A publication goes once to every matching local subscriber, and to the mesh if a subscriber elsewhere may want it.
Frontends (MQTT, Web) and in-process agents are on one side of the hub, `saps.mesh.Mesh` is on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from saps.mesh import Alone, Done, Mesh, Recalled
from saps.messages import REFUSED, Message, Reached, Subscription, stamp_in
from saps.routing.batch import Batch
from saps.routing.groups import Groups
from saps.routing.priority import Priorities
from saps.routing.reserved import is_own, is_publishable, is_reserved
from saps.routing.retained_messages import RetainedMessages
from saps.routing.routes import Route, Routes
from saps.routing.subscriptions import SubscriptionIndex, Target
from saps.routing.tracer import Tracer
from saps.statistics import Statistics, TopicCount
from saps.topics import shared

if TYPE_CHECKING:
    from saps.agents.user import PublisherAgent, SubscriberAgent

NOT_PUBLISHED = -1
"""Returned instead of a number of subscribers if the publisher may not publish to the topic."""


class Hub:
    """The local half of a broker (a `saps.mesh.Local`). Synchronous: callbacks may run before a call returns."""

    def __init__(self, mesh: Mesh | None = None, clock: Callable[[], float] = lambda: 0.0) -> None:
        """`clock` returns seconds for message expiry; the driver of a frontend sets it."""
        self.clock = clock
        self.index = SubscriptionIndex()
        self.routes = Routes(self.index)
        self.groups = Groups(self.index, self.routes, self._time)
        self.retained = RetainedMessages(self._time, self.index)
        self.agents: dict[str, PublisherAgent | SubscriberAgent] = {}
        """The live user agents by name."""
        self.published = 0
        """Messages published at this broker."""
        self.received = 0
        """Messages received from other brokers."""
        self._delivered = 0
        self.statistics: Statistics | None = None
        """Counts by topic, if enabled (`count`)."""
        self.behind: set[object] = set()
        """The connected clients for which messages are queued, since their queue was half full."""
        self.priorities: Priorities | None = None
        """The topics with priority between brokers, if there are any."""
        self.tracer: Tracer | None = None
        """Traces publications, if enabled."""
        self._mesh: Mesh = Alone()
        self.mesh = self._mesh if mesh is None else mesh

    @property
    def mesh(self) -> Mesh:
        return self._mesh

    @mesh.setter
    def mesh(self, mesh: Mesh) -> None:
        self._mesh = self.routes.mesh = self.groups.mesh = mesh
        self.retained.complete = isinstance(mesh, Alone)
        self.routes.clear()

    @property
    def lagging(self) -> bool:
        return bool(self.behind)

    @property
    def delivered(self) -> int:
        """Copies delivered to local subscribers."""
        return self._delivered + self.groups.delivered

    def count(self, topics: int) -> Statistics:
        """Start to count by topic, in a table of so many topics."""
        self.statistics = self.routes.statistics = Statistics(topics)
        self.routes.clear()
        return self.statistics

    # ---- subscriptions

    def subscribe(
        self, agent: SubscriberAgent, subscription: Subscription, done: Callable[[], None], retained: bool = True
    ) -> None:
        """Subscribe an agent. `done` runs when it can miss no message published later anywhere in the mesh, and has got
        the retained messages, if it wants them and `retained` is set."""
        self.routes.count_members(subscription.filter, before=True)
        self.index.add(agent, subscription, self.retained.moment)
        self.routes.count_members(subscription.filter)
        self.routes.forget(subscription.filter)
        if is_own(subscription.filter):
            done()
            return
        if retained and subscription.retain_handling < 2 and shared(subscription.filter) is None:
            self.retained.begin(agent, subscription.filter)
            done = partial(self._recall, subscription.filter, done)
        self._mesh.subscribe(subscription.filter, done)

    def unsubscribe(self, agent: SubscriberAgent, topic_filter: str) -> None:
        """End an agent's subscription with this filter, if there is one."""
        self.routes.count_members(topic_filter, before=True)
        last = self.index.remove(agent, topic_filter)
        self.routes.count_members(topic_filter)
        self.routes.forget(topic_filter)
        self.retained.end(agent, topic_filter)
        if last and not is_own(topic_filter):
            self._mesh.unsubscribe(topic_filter)

    def forget_agent_routes(self, agent: SubscriberAgent) -> None:
        """Forget the routes to an agent. Must be called when its rights have changed."""
        for topic_filter in agent.subscriptions:
            self.routes.forget(topic_filter)

    # ---- publishing

    def tell(self, message: Message) -> None:
        """Deliver a message of the broker itself to its own clients, under a reserved topic."""
        batch = Batch.of(message)
        for target in self.routes.readers(message.topic):
            target.agent.deliver(batch, target)

    def publish(self, batch: Batch, sender: SubscriberAgent | None = None, done: Done | None = None) -> Sequence[int]:
        """Publish at this broker: the only entry for publications of clients, wills and programs.

        `sender` is the subscriber agent of the publisher, for no-local and for its rights. `done` gets for each topic
        how many brokers and subscribers its publications have reached in the whole mesh; with QoS 1 or 2 only when all
        brokers have them.

        Returns the number of subscribers here for each topic: `NOT_PUBLISHED` for one that the sender may not publish
        to, for which `done` gets `REFUSED`.
        """
        known, rights = self.routes.known, None if sender is None else sender.rights
        routes: list[Route] = []
        for topic in batch.topics:
            route = known.get(topic)
            if route is None or (rights is not None and topic not in rights.publishable):
                if not _may_publish(sender, topic):
                    return self._publish_permitted(batch, sender, done)
                route = self.routes.find(topic)
            routes.append(route)
        trace = None
        if batch.retain:
            batch = self._stamped(batch)
        if self.tracer is not None:
            batch, trace = self.tracer.published(batch, routes, sender)
        if batch.properties is not None:
            batch.set_deadlines(self.clock())
        matched = self._publish_here(batch, routes, sender)
        if trace is not None:
            trace.delivered(matched)
        remote = batch.retain
        for route in routes:
            if route.mesh.remote:
                remote = True
            else:
                route.mesh.used = True
        if remote:
            told = None if done is None else partial(_in_all, matched, done)
            self._mesh.publish(batch, told if trace is None else trace.routed(told))
        elif done is not None:
            done([Reached(0, count) for count in matched])
        return matched

    def publish_remote(self, single: Batch, sender: SubscriberAgent, done: Done) -> Sequence[int]:
        """Publish a batch of one to the mesh alone, since the subscribers here have it already; as `publish`."""
        if not _may_publish(sender, single.topic):
            done([REFUSED])
            return [NOT_PUBLISHED]
        matched = [self.matching(single.topic)]
        self._mesh.publish(self._stamped(single) if single.retain else single, partial(_in_all, matched, done))
        return matched

    def _stamped(self, batch: Batch) -> Batch:
        """Return a batch to be retained, with stamps that order the retained messages of a topic."""
        return batch.replace([self._mesh.stamp(each) for each in batch.properties or [None] * len(batch)])

    def _publish_permitted(self, batch: Batch, sender: SubscriberAgent | None, done: Done | None) -> Sequence[int]:
        """Publish the part of a batch that the sender may publish. The rest leaves no trace here or in the mesh."""
        permitted = [_may_publish(sender, topic) for topic in batch.topics]
        if self.tracer is not None:
            self.tracer.denied(sender, [t for t, may in zip(batch.topics, permitted, strict=True) if not may])

        def told(reached: Sequence[Reached]) -> None:
            if done is not None:
                each = iter(reached)
                done([next(each) if is_permitted else REFUSED for is_permitted in permitted])

        matched: Sequence[int] = ()
        if any(permitted):
            part = batch.select([index for index, number in enumerate(batch.which) if permitted[number]])
            matched = self.publish(part, sender, told)
        else:
            told(())
        counts = iter(matched)
        return [next(counts) if is_permitted else NOT_PUBLISHED for is_permitted in permitted]

    def _publish_here(self, batch: Batch, routes: list[Route], sender: SubscriberAgent | None) -> list[int]:
        """Retain the batch if asked to, and deliver it here. Returns the number of subscribers of each topic."""
        self.published += len(batch.which)
        if self.statistics is not None:
            _count_published(self.statistics, batch, routes, sender)
        if batch.retain:
            for single in batch.singles:
                self.retained.published(single, here=True)
        matched = self._deliver_local(batch, routes, sender)
        if any([route.groups for route in routes]):
            matched = [count + len(route.groups) for count, route in zip(matched, routes, strict=True)]
            for single, number in zip(batch.singles, batch.which, strict=True):
                for group in routes[number].groups:
                    self.groups.publish(group, single)
        return matched

    def _deliver_local(self, batch: Batch, routes: list[Route], sender: SubscriberAgent | None) -> list[int]:
        """Deliver the batch to the subscribers of its topics. Returns the number of subscribers of each topic."""
        targets = routes[0].targets
        if len(routes) > 1 and not all([route.targets is targets for route in routes]):
            return self._deliver_parts(batch, routes, sender)
        matched = 0
        for target in targets:
            agent = target.agent
            if agent is sender:
                if target.own is None:
                    continue
                target = target.own
            agent.deliver(batch, target)
            matched += 1
        self._delivered += matched * len(batch.which)
        return [matched] * len(routes)

    def _deliver_parts(self, batch: Batch, routes: list[Route], sender: SubscriberAgent | None) -> list[int]:
        """Deliver a batch whose topics have different subscribers: each gets its part in one piece. Subscribers of the
        same part share one object."""
        places: dict[int, list[int]] = {}
        """By the identity of a tuple of subscribers: the indexes of the publications for them."""
        of_topic = [places.setdefault(id(route.targets), []) for route in routes]
        for index, number in enumerate(batch.which):
            of_topic[number].append(index)
        wanted: dict[tuple[object, ...], tuple[Target, list[int]]] = {}
        """By agent and form: the target, and the indexes of its publications."""
        matched: dict[int, int] = {}
        for route in routes:
            name = id(route.targets)
            if name in matched:
                continue
            matched[name] = 0
            for target in route.targets:
                if target.agent is sender:
                    if target.own is None:
                        continue
                    target = target.own
                matched[name] += 1
                key = target.agent, target.qos, target.identifiers, target.retain_as_published
                found = wanted.get(key)
                if found is None:
                    wanted[key] = target, [name]
                else:
                    found[1].append(name)
        parts: dict[tuple[int, ...], Batch] = {}
        for target, names in wanted.values():
            which = tuple(names)
            part = parts.get(which)
            if part is None:
                indexes = places[names[0]] if len(names) == 1 else sorted(chain(*[places[name] for name in names]))
                part = parts[which] = batch.select(indexes)
            target.agent.deliver(part, target)
            self._delivered += len(part.which)
        return [matched[id(route.targets)] for route in routes]

    # ---- from other brokers

    def deliver(self, batch: Batch) -> list[int]:
        """Deliver publications of another broker to the local subscribers. Returns the number of subscribers of each
        topic."""
        known = self.routes.known
        routes = [known.get(topic) or self.routes.find(topic) for topic in batch.topics]
        self.received += len(batch.which)
        if self.statistics is not None:
            _count_received(self.statistics, batch, routes)
        if batch.properties is not None:
            batch.set_deadlines(self.clock())
        trace = None if self.tracer is None else self.tracer.arrived(batch, routes)
        matched = self._deliver_retained(batch, routes) if batch.retain else self._deliver_local(batch, routes, None)
        if trace is not None:
            trace.delivered(matched)
        return matched

    def _deliver_retained(self, batch: Batch, routes: list[Route]) -> list[int]:
        """Deliver each publication to the subscribers that have not got it, or a later one, as a retained message."""
        for single, number in zip(batch.singles, batch.which, strict=True):
            if single.properties is not None and stamp_in(single.properties[0]):
                self.retained.published(single)
            for target in routes[number].targets:
                if not self.retained.was_given(target.agent, single):
                    target.agent.deliver(single, target)
                    self._delivered += 1
        return [len(route.targets) for route in routes]

    def matching(self, topic: str) -> int:
        """Return the number of local subscribers for a message of another broker to a topic."""
        return len(self.routes.find(topic).targets)

    # ---- retained messages

    def retained_for(self, topic_filter: str, agent: SubscriberAgent | None = None) -> list[Batch]:
        """Return the retained messages for a new subscription when it is done, each as a batch of one.

        `agent` is the subscriber; it gets no message that it may not read, and none again that it got as a publication
        since it subscribed."""
        found = self.retained.matching(topic_filter, agent)
        if self.routes.receives is not None:
            found = [each for each in found if self.routes.may_get(each.topic)]
        if agent is not None and self.routes.restricted:
            found = [each for each in found if agent.may_read(each.topic)]
        return found

    def kept(self, message: Message) -> None:
        """Drop a retained message published here, which the mesh holds now, unless its topic is subscribed here."""
        self.retained.kept(message)

    def _recall(self, topic_filter: str, done: Callable[[], None]) -> None:
        """Fetch the retained messages for a new filter from the mesh."""

        def found(recalled: Sequence[Recalled]) -> None:
            self.retained.recalled(recalled)
            done()

        self._mesh.recall(topic_filter, found)

    def _time(self) -> float:
        return self.clock()

    # ---- wills

    def guard_will(self, client: str, will: Message | None, delay: float = 0.0) -> None:
        """Have another broker publish a client's will `delay` seconds after this broker's death; None revokes it."""
        self._mesh.guard_will(client, will, delay)

    def connected(self, client: str) -> bool:
        """Return whether this client is connected here."""
        agent = self.agents.get(f"{client}/sub")
        return agent is not None and agent.present

    def bequeath(self, will: Message) -> None:
        """Publish the will of a client whose broker has died."""
        if not is_reserved(will.topic):
            self.publish(Batch.of(will))

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Deliver a message to one member of a shared subscription: `saps.mesh.Local.take`."""
        return self.groups.take(topic_filter, message, forced, settled)

    def describe(self) -> dict[str, int]:
        """Return counts for status pages and logs."""
        return {
            "agents": len(self.agents),
            "filters": len(self.index),
            "retained": len(self.retained),
            "published": self.published,
            "received": self.received,
            "delivered": self.delivered,
        }


def _may_publish(sender: SubscriberAgent | None, topic: str) -> bool:
    return is_publishable(topic, sender is not None) and (
        sender is None or sender.rights is None or sender.rights.may_publish(topic)
    )


def _in_all(matched: Sequence[int], done: Done, reached: Sequence[Reached]) -> None:
    """Add the subscribers here to those elsewhere."""
    done([Reached(each.brokers, each.subscribers + count) for each, count in zip(reached, matched, strict=True)])


def _count_of(statistics: Statistics, route: Route) -> TopicCount:
    """Return the counters of a route's topic, with the number of its subscribers set."""
    count = statistics.of(route.topic)
    if count.subscribers < 0:
        count.members(len(route.targets))
    return count


def _count_published(statistics: Statistics, batch: Batch, routes: list[Route], sender: SubscriberAgent | None) -> None:
    for route, (messages, size) in zip(routes, batch.totals, strict=True):
        count = _count_of(statistics, route)
        count.messages += messages
        count.bytes += size
        if count.last is not sender:
            count.by(sender)


def _count_received(statistics: Statistics, batch: Batch, routes: list[Route]) -> None:
    for route, (messages, size) in zip(routes, batch.totals, strict=True):
        count = _count_of(statistics, route)
        count.received += messages
        count.received_bytes += size
