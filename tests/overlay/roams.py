"""Simulated brokers with the product's own MQTT frontend, and clients that go from one to the other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Self

from saps.frontend.mqtt.access.authorizer import Anybody
from saps.frontend.mqtt.codec.packets import (
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
)
from saps.frontend.mqtt.codec.properties import Property
from saps.frontend.mqtt.frontend import Frontend
from saps.frontend.mqtt.limits import Limits
from saps.frontend.mqtt.session.migration import SessionMigration
from saps.messages import Message
from saps.overlay.sessions.migration.transfer import Stage
from saps.routing.batch import Batch
from saps.simulator import SimBroker
from tests.frontend.mqtt.bench import Client, pubcomp, pubrec
from tests.overlay.hubs import Hubs

TIMEOUT = 60.0
"""Virtual seconds that a test waits for what must come."""


class Bench:
    """The frontend of one simulated broker. (As `tests.frontend.mqtt.bench.Bench`, but with the simulation's clock.)"""

    def __init__(self, mesh: Roams, broker: SimBroker, limits: Limits) -> None:
        self.mesh = mesh
        self.broker = broker
        self.frontend = Frontend(
            mesh.hubs[broker],
            limits,
            lambda: mesh.now,
            random.Random(broker.ref.incarnation),
            lambda when: mesh.at(max(when, mesh.now), self._timers),
        )
        self.frontend.turn.call_soon = lambda end: mesh.at(mesh.now, lambda: broker.act(end))
        self.frontend.sessions.migration = broker.node.sessions.host = SessionMigration(
            self.frontend, self.frontend.sessions, broker.node.sessions
        )

    def deal(self) -> Bench:
        return self

    def act(self, action: Callable[[], object]) -> None:
        action()

    def flush(self) -> None:
        self.frontend.turn.flush()

    def _timers(self) -> None:
        def run() -> None:
            self.frontend.timers.run(self.mesh.now)
            self.flush()
            following = self.frontend.timers.next
            if following is not None:
                self.mesh.at(following, self._timers)

        self.broker.act(run)


class Roams(Hubs):
    """A simulation in which each broker serves MQTT clients."""

    def __init__(self, seed: int, limits: Limits | None = None, **options: object) -> None:
        super().__init__(seed, **options)
        self.limits = limits or Limits()
        self.benches: dict[SimBroker, Bench] = {}

    def attach(self, broker: SimBroker) -> None:
        super().attach(broker)
        self.benches[broker] = Bench(self, broker, self.limits)

    def sessions(self, client: str) -> list[str]:
        """The brokers that have a session of the client."""
        return [broker.name for broker in self.alive() if client in self.benches[broker].frontend.sessions]

    def complete(self, client: str) -> list[str]:
        """Those of them that have all of it."""
        found = []
        for name in self.sessions(client):
            target = self.brokers[name].node.sessions.migrations.target
            stages = [t.stage for t in target.transfers.values() if t.claiming.client == client]
            if all(stage in (Stage.ASKING, Stage.DESCRIBED, Stage.CLEARING, Stage.ARRIVED) for stage in stages):
                found.append(name)
        return found

    def tell(self, broker: SimBroker, number: int, qos: int) -> None:
        """Publish a number."""
        hub = self.hubs[broker]
        payload = b"%s %d" % (broker.name.encode(), number)
        broker.act(partial(hub.publish, Batch.of(Message(f"t/{qos}/{number % 2}", payload, qos))))


class Known(Anybody):
    """The authorizer of a client of which it is known whose it is."""

    def __init__(self, user: str) -> None:
        self.user = user


class Nomad:
    """A subscriber that keeps its side of the protocol (4.3, 4.4), wherever it connects."""

    def __init__(self, mesh: Roams, name: str, version: int = V5, expiry: int = 3600, will: Will | None = None) -> None:
        self.mesh = mesh
        self.name = name
        self.version = version
        self.expiry = expiry
        self.will = will
        self.client: Client | None = None
        self.broker: SimBroker | None = None
        self.greeted = False
        self.present: list[bool] = []
        """What each CONNACK has said."""
        self.refused: list[int] = []
        self.subscribed = False
        self.got: dict[int, list[bytes]] = {1: [], 2: []}
        self.plain: Counter[bytes] = Counter()
        """How often each payload of QoS 1 came without DUP."""
        self.ended: list[int] = []
        """Reasons of the DISCONNECTs."""
        self._abandoned: list[Client] = []
        """Connections that it has left; there may be answers it does not hear."""
        self._taken: set[int] = set()
        self._unanswered: list[Publish | Ack] = []

    @classmethod
    def at(cls, broker: SimBroker, mesh: Roams) -> Self:
        """A client that has connected to a broker, and subscribed."""
        nomad = cls(mesh, "c")
        nomad.arrive(broker)
        nomad.subscribe("t/#")
        return nomad

    def connect(self, broker: SimBroker, clean: bool = False, user: str | None = None) -> None:
        """Connect; the old connection, if there is one, is not closed: the client has lost its way."""
        self.hear()
        if self.client is not None:
            self._abandoned.append(self.client)
        self.client = Client(self.mesh.benches[broker], self.version)  # type: ignore[arg-type]
        if user is not None:
            self.client.connection.authorizer = Known(user)
        self.broker, self.greeted = broker, False
        self._unanswered.clear()
        properties: dict[int, Any] = {Property.SESSION_EXPIRY: self.expiry} if self.version == V5 else {}
        packet = Connect(self.name, version=self.version, clean_start=clean, properties=properties, will=self.will)
        broker.act(partial(self.client.send, packet))

    def lose(self) -> None:
        """The connection breaks."""
        if self.client is not None and self.broker is not None:
            self.broker.act(self.client.lose)
        self.client = None

    def cut(self, broker: SimBroker) -> None:
        """All connections with a broker break, also those that it has left."""
        if self.broker is broker:
            self.lose()
        for client in self._abandoned:
            if client.connection.frontend is self.mesh.benches[broker].frontend and not client.connection.closing:
                broker.act(client.lose)

    @property
    def alive(self) -> bool:
        """It has a connection, as far as it knows."""
        return self.client is not None and not self.client.closed and self.broker is not None and self.broker.alive

    def hear(self) -> None:
        """Take what has come."""
        if self.client is None:
            return
        for packet in self.client.take():
            if isinstance(packet, Connack):
                self._greet(packet)
            elif isinstance(packet, Publish):
                self._take(packet)
            elif isinstance(packet, Suback):
                self.subscribed = True
            elif isinstance(packet, Disconnect):
                self.ended.append(packet.reason)
            elif isinstance(packet, Ack) and packet.type == PacketType.PUBREL:
                self._taken.discard(packet.packet_id)
                self._unanswered.append(packet)

    def misled(self) -> bool:
        """Has a broker begun a new session, and told only a connection that it had left? The next CONNACK says that
        there is a session, then. (So with any broker: MQTT has no way to find out.)"""
        found = [p for client in self._abandoned for p in client.packets if isinstance(p, Connack) and not p.reason]
        self._abandoned.clear()
        if lost := not all(packet.session_present for packet in found):
            self._taken.clear()
        return lost

    def _greet(self, packet: Connack) -> None:
        if packet.reason:
            self.refused.append(packet.reason)
            return
        self.greeted = True
        self.present.append(packet.session_present)
        if not packet.session_present:
            self._taken.clear()
            self.subscribed = False

    def _take(self, packet: Publish) -> None:
        assert packet.packet_id is not None
        self._unanswered.append(packet)
        if packet.qos == 1:
            self.got[1].append(packet.payload)
            self.plain[packet.payload] += not packet.dup
        elif packet.packet_id not in self._taken:
            self._taken.add(packet.packet_id)
            self.got[2].append(packet.payload)

    def answer(self, count: int = 1000) -> None:
        """Acknowledge the first of what has not been."""
        if not self.alive or self.client is None or self.broker is None:
            return
        answers = []
        for packet in self._unanswered[:count]:
            assert packet.packet_id is not None
            if isinstance(packet, Ack):
                answers.append(pubcomp(packet.packet_id))
            else:
                answers.append(
                    Ack(PacketType.PUBACK, packet.packet_id) if packet.qos == 1 else pubrec(packet.packet_id)
                )
        del self._unanswered[:count]
        if answers:
            self.broker.act(partial(self.client.send, *answers))

    def attend(self, seconds: float) -> None:
        """Let time pass, take what has come, and acknowledge it."""
        self.mesh.run(seconds)
        self.hear()
        self.answer()

    def wander(self, rng: random.Random, moves: float, without: Collection[str] = ()) -> None:
        """Do something by chance; `moves`: how often it connects, to any broker but some."""
        dice = rng.random()
        self.hear()
        if dice < moves:
            self.connect(rng.choice([broker for broker in self.mesh.alive() if broker.name not in without]))
        elif dice < 0.3:
            self.lose()
        elif self.alive:
            self.answer(rng.randrange(1, 6))
        self.hear()

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        """SUBSCRIBE, and wait for SUBACK."""
        assert self.client is not None
        assert self.broker is not None
        packet = Subscribe(1, [SubscribeEntry(each, qos) for each in filters])
        self.broker.act(partial(self.client.send, packet))
        self.until(lambda: self.subscribed)

    def until(self, condition: object) -> None:
        assert callable(condition)

        def holds() -> bool:
            self.hear()
            self.answer()
            return bool(condition())

        self.mesh.run_until(holds, TIMEOUT)

    def arrive(self, broker: SimBroker, clean: bool = False) -> bool:
        """Connect, and wait until the broker has let it in. What CONNACK says of the session."""
        self.connect(broker, clean)
        self.until(lambda: self.greeted)
        return self.present[-1]
