"""Simulated brokers with the product's own hub, clients that remember what they got, a judge of retained messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from saps.agents.user import SubscriberAgent
from saps.mesh import Done, Local
from saps.messages import Message, Subscription, stamp_of
from saps.overlay.frames.base import Frame
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch
from saps.routing.hub import Hub
from saps.routing.subscriptions import Target
from saps.simulator import SimBroker, Simulation
from saps.topics import matches

TOPICS = ["a", "a/b", "a/c", "x/y", "$s/a"]
FILTERS = ["a", "a/b", "a/+", "#", "+/y", "a/#", "x/y", "$s/#"]


class Got(NamedTuple):
    """One message as a client got it."""

    topic: str
    stamp: int
    payload: bytes
    retained: bool
    """Because of its subscription."""


class Client(SubscriberAgent):
    """A client with one subscription."""

    def __init__(self, hub: Hub, name: str, topic_filter: str) -> None:
        super().__init__(hub, name)
        self.filter = topic_filter
        self.got: list[Got] = []
        self.ready = False

    def deliver(self, batch: Batch, target: Target) -> None:
        for message in batch.messages:
            self.got.append(Got(message.topic, stamp_of(message), message.payload, batch.replayed))

    def start(self) -> None:
        """Subscribe, and take what is retained when the subscription is done, as a frontend does."""
        subscription = Subscription(self.filter)

        def done() -> None:
            self.ready = True
            for single in self.hub.retained_for(self.filter, self):
                self.deliver(single, Target(self, (subscription,)))

        self.subscribe(subscription, done)


class Hubs(Simulation):
    """A simulation in which each broker has a hub."""

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)  # type: ignore[arg-type]
        self.hubs: dict[SimBroker, Hub] = {}
        self.clients: list[tuple[SimBroker, Client]] = []
        self.published: list[tuple[SimBroker, Message]] = []
        self.acknowledged: set[int] = set()
        """Stamps of the retained messages with QoS 1 and 2 whose publisher was answered."""

    def local(self, broker: SimBroker) -> Local:
        hub = self.hubs[broker] = Hub(clock=lambda: self.now)
        return hub

    def attach(self, broker: SimBroker) -> None:
        node = broker.node
        publish = node.mesh.publish

        def noted(batch: Batch, done: Done | None) -> None:
            self.published += [(broker, message) for message in batch.messages if batch.retain]
            publish(batch, done)

        node.mesh.publish = noted  # type: ignore[method-assign]
        self.hubs[broker].mesh = node.mesh
        broker.node.port.timers.epoch = self.rng.uniform(-0.1, 0.1)  # clocks differ

    def client(self, broker: SimBroker, topic_filter: str) -> Client:
        """A new client, subscribing."""
        client = Client(self.hubs[broker], f"c{len(self.clients)}", topic_filter)
        self.clients.append((broker, client))
        broker.act(client.start)
        return client

    def publish(self, broker: SimBroker, topic: str, qos: int, payload: bytes | None = None) -> None:
        """Publish a retained message; no payload given: one that no other has."""
        hub = self.hubs[broker]
        text = b"%d" % len(self.published) if payload is None else payload

        batch, number = Batch.of(Message(topic, text, qos, retain=True)), len(self.published)

        def acknowledged(reached: object) -> None:
            self.acknowledged.add(stamp_of(self.published[number][1]))

        broker.act(lambda: hub.publish(batch, None, acknowledged if qos else None))

    def last(self, topic: str, among: Callable[[Message], bool] = lambda message: True) -> Message | None:
        """What is retained for the topic."""
        found = [message for _, message in self.published if message.topic == topic and among(message)]
        return max(found, key=stamp_of, default=None)

    def leave(self, broker: SimBroker) -> None:
        """A broker leaves in order: first its clients go."""
        for at, client in self.clients:
            if at is broker:
                at.act(client.close)
        broker.leave()

    def there(self) -> list[SimBroker]:
        """The brokers that take part."""
        return [broker for broker in self.alive() if broker.joined and not broker.node.leaving.begun]

    # --- the judge ----------------------------------------------------------------------------------------------

    def judge_clients(self) -> None:
        """Raise AssertionError if a client got a message twice, a retained one after a newer one, or one publisher's
        messages out of their order; or if it missed what is retained now. For scenes without faults."""
        for broker, client in self.clients:
            if client.ready:
                self.judge_order(broker, client)
                if broker.alive and client.subscriptions:
                    self._judge_last(broker, client)

    def judge_order(self, broker: SimBroker, client: Client) -> None:
        where = f"{client.name} at {broker.name} (seed {self.seed})"
        stamps = [got.stamp for got in client.got]
        assert len(stamps) == len(set(stamps)), f"a message twice: {where}"
        publisher = {stamp_of(message): source for source, message in self.published}
        seen: dict[tuple[str, SimBroker], int] = {}
        newest: dict[str, int] = {}
        for got in client.got:
            source = got.topic, publisher[got.stamp]
            assert got.stamp > seen.get(source, 0), f"disorder on {got.topic}: {where}"
            seen[source] = got.stamp
            assert not got.retained or got.stamp > newest.get(got.topic, 0), f"stale {got.topic}: {where}"
            assert not got.retained or got.payload, f"a deleted one: {where}"
            newest[got.topic] = max(got.stamp, newest.get(got.topic, 0))

    def _judge_last(self, broker: SimBroker, client: Client) -> None:
        have = {got.stamp for got in client.got}
        for topic in TOPICS:
            last = self.last(topic)
            if last is not None and last.payload and matches(client.filter, topic):
                assert stamp_of(last) in have, f"{client.filter} at {broker.name} missed {last} (seed {self.seed})"

    def judge_newcomers(self, acknowledged: bool = False) -> None:
        """Raise AssertionError unless a new subscriber at any broker gets what is retained, and nothing else; after
        faults what was `acknowledged`, or something later."""
        newcomers = [(broker, self.client(broker, f)) for broker in self.there() for f in ("#", "$s/#", "a/b")]
        self.run_until(lambda: all(client.ready for _, client in newcomers), 60)
        self.run(1)
        for broker, client in newcomers:
            got = {g.topic: g for g in client.got}
            where = f"{client.filter} at {broker.name} (seed {self.seed})"
            assert len(got) == len(client.got), f"a topic twice: {where}"
            for topic in TOPICS:
                last = self.last(topic)
                if not matches(client.filter, topic) or last is None:
                    assert topic not in got, where
                elif not acknowledged:
                    assert (got[topic].payload if topic in got else b"") == last.payload, f"{topic}: {where}"
                else:
                    self._judge_acknowledged(topic, got.get(topic), where)

    def _judge_acknowledged(self, topic: str, got: Got | None, where: str) -> None:
        owed = self.last(topic, lambda message: stamp_of(message) in self.acknowledged)
        if owed is None:
            return
        later = self.last(topic, lambda message: stamp_of(message) > stamp_of(owed) and not message.payload)
        if got is not None:
            assert got.stamp >= stamp_of(owed), f"{topic} is stale: {where}"
        else:
            assert not owed.payload or later is not None, f"{topic} is lost: {where}"


class Weighed(Hubs):
    """Hubs whose frames are weighed."""

    most = 0
    """Most bytes that one broker has sent to another at one moment: a link breaks if too many wait on it."""

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)
        self._sent: dict[tuple[str, str], tuple[float, int]] = {}

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        then, before = self._sent.get((source.name, to.name), (0.0, 0))
        size = len(msgspec.msgpack.encode(frame)) + (before if then == self.now else 0)
        self._sent[source.name, to.name] = self.now, size
        self.most = max(self.most, size)
        super()._send(source, to, frame)


def random_act(rng: random.Random, mesh: Hubs, churn: bool) -> None:
    """One random act: mostly retained publications and new subscribers, now and then a broker joins or leaves."""
    broker = rng.choice(mesh.there())
    dice = rng.random()
    if dice < 0.5:
        mesh.publish(broker, rng.choice(TOPICS), rng.choice((0, 1, 2)), b"" if rng.random() < 0.2 else None)
    elif dice < 0.8:
        mesh.client(broker, rng.choice(FILTERS))
    elif dice < 0.9:
        at, client = rng.choice(mesh.clients) if mesh.clients else (broker, None)
        if client is not None:
            at.act(client.close)
    elif churn and dice < 0.95:
        number = len(mesh.brokers)
        mesh.add(f"b{number}", f"c{number % 3}", broker.name)
    elif churn and len(mesh.there()) > 3:
        mesh.leave(broker)
