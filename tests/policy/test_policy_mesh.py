"""No packet of a forbidden topic goes to or through a forbidden cluster, by ALM: in the simulator, with real hubs."""

from __future__ import annotations

import random

import pytest

from saps.messages import Message
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Keep, Stored
from saps.overlay.frames.delivery import GroupDelivery, Publish
from saps.overlay.frames.sessions import Guard
from saps.overlay.rendezvous.designer import DesignSettings
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.policy.model import Policy, Verdict
from saps.simulator import SimBroker
from tests.overlay.hubs import Hubs

pytestmark = pytest.mark.simulation

SECRET, OPEN = "city/health/beds", "city/air"
BARRED_CLUSTER, BARRED_BROKER = "c1", "b2"
POLICY = Policy(
    1, {"city/health": Verdict(frozenset({BARRED_CLUSTER})), "city": Verdict(brokers=frozenset({BARRED_BROKER}))}
)


def topics_in(frame: Frame) -> set[str]:
    """The topics of the messages that a frame carries."""
    if isinstance(frame, Publish):
        return {part.topic for part in frame.parts}
    if isinstance(frame, GroupDelivery):
        return {frame.topic}
    if isinstance(frame, Guard):
        return {will.message.topic for will in frame.wills}
    bodies = [getattr(frame, "body", None), *(getattr(frame, "results", None) or ())]
    return {r.message.topic for body in bodies if isinstance(body, Keep | Stored) for r in body.records}


class Policed(Hubs):
    """A mesh whose brokers obey, and a wire tap."""

    def __init__(self, seed: int, order: KeyOrder = KeyOrder.CLUSTER, design: DesignSettings | None = None) -> None:
        super().__init__(seed, order=order, design=design)
        self.carried: list[tuple[str, BrokerRef, str]] = []
        """From whom, to whom, which topic."""

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        self.carried += [(source.name, to, topic) for topic in topics_in(frame)]
        super()._send(source, to, frame)

    def obey(self, policy: Policy) -> None:
        for broker in self.alive():
            broker.act(lambda broker=broker: broker.node.mesh.obey(policy))  # type: ignore[misc]
            self.hubs[broker].routes.obey(lambda topic, ref=broker.ref: policy.verdict(topic).receives(ref))  # type: ignore[misc]

    def will(self, broker: SimBroker, client: str, topic: str) -> None:
        broker.act(lambda: self.hubs[broker].guard_will(client, Message(topic, b"gone", 1)))

    def judge(self) -> None:
        """Raise AssertionError if anything went where it must not."""
        cluster = {name: broker.ref.cluster for name, broker in self.brokers.items()}
        for source, to, topic in self.carried:
            verdict = POLICY.verdict(topic)
            assert verdict.carries(cluster[source]), (source, to.name, topic)
            assert verdict.receives(to), (source, to.name, topic)
        for broker, client in self.clients:
            for got in client.got:
                assert POLICY.verdict(got.topic).receives(broker.ref), (broker.name, got)


@pytest.mark.parametrize(
    ("order", "design"),
    [
        pytest.param(KeyOrder.ALM, None, marks=pytest.mark.soak),
        (KeyOrder.CLUSTER, None),
        (KeyOrder.CLUSTER, DesignSettings(interval=1.0)),
    ],
)
def test_nothing_crosses_a_forbidden_cluster(order: KeyOrder, design: DesignSettings | None) -> None:
    """Publications of all kinds, retained ones and wills, from everywhere; with crashes and links that break."""
    mesh = Policed(7, order, design)
    brokers = mesh.build(12, 4)
    mesh.obey(POLICY)
    for broker in brokers:
        for topic_filter in ("city/#", SECRET, "$share/g/city/#"):
            mesh.client(broker, topic_filter)
    mesh.run(3)
    rng = random.Random(7)
    for i, broker in enumerate(brokers):
        mesh.will(broker, f"w{i}", SECRET)
        for topic in (SECRET, OPEN):
            broker.publish(topic, b"%d" % i, i % 3)
            mesh.publish(broker, topic, 1)
        mesh.run(0.05)
    for _ in range(6):
        one, other = rng.sample(brokers, 2)
        mesh.reset_link(one.name, other.name)
        one.publish(SECRET, b"again", 1)
        mesh.run(0.2)
    mesh.crash(brokers[5].name)
    mesh.run(4)
    mesh.client(brokers[8], "city/#")
    mesh.run(8)
    mesh.judge()
    sent = {topic for _, _, topic in mesh.carried}
    assert sent == {SECRET, OPEN}
    reached = {broker.name for broker, client in mesh.clients if any(got.topic == SECRET for got in client.got)}
    assert reached == {b.name for b in brokers if POLICY.verdict(SECRET).receives(b.ref)}


def test_everyone_who_may_gets_every_message_and_a_policy_can_come_and_go() -> None:
    mesh = Policed(3)
    brokers = mesh.build(8, 4)
    clients = {broker: mesh.client(broker, "city/#") for broker in brokers}
    mesh.run(2)

    def heard(publisher: SimBroker, payload: bytes) -> set[str]:
        publisher.publish(SECRET, payload, 1)
        mesh.run(2)
        return {
            broker.name
            for broker in brokers
            if broker is not publisher and any(got.payload == payload for got in clients[broker].got)
        }

    everyone = {broker.name for broker in brokers}
    assert heard(brokers[0], b"before") == everyone - {"b0"}
    mesh.obey(POLICY)
    assert heard(brokers[0], b"while") == everyone - {"b0", "b2", "b1", "b5"}
    assert heard(brokers[1], b"from a forbidden cluster") == set()
    assert heard(brokers[2], b"from a forbidden broker") == everyone - {"b2", "b1", "b5"}
    mesh.obey(Policy(2))
    assert heard(brokers[1], b"after") == everyone - {"b1"}
    for client in clients.values():
        assert len(client.got) == len({got.payload for got in client.got}), "a message came twice"


def test_a_message_for_a_group_is_handed_to_nobody_who_must_not_have_it() -> None:
    """Its members have to be looked for: nobody publishes to the topic here."""
    mesh = Policed(4)
    brokers = mesh.build(6, 3)
    mesh.obey(POLICY)
    for broker in (brokers[1], brokers[2], brokers[4], brokers[5]):
        mesh.client(broker, "$share/g/city/#")
    mesh.run(2)
    share = brokers[0].node.mesh.share
    settled: list[int] = []
    for i in range(8):
        message = Message(SECRET, b"%d" % i, 1)
        brokers[0].act(lambda m=message, i=i: share("$share/g/city/#", m, lambda: settled.append(i)))  # type: ignore[misc]
        mesh.run(1)
    mesh.judge()
    assert settled == list(range(8))
    assert {to.name for _, to, topic in mesh.carried if topic == SECRET} == {"b5"}


def test_what_the_mesh_kept_of_a_forbidden_topic_is_found_by_nobody_any_more() -> None:
    mesh = Policed(6)
    brokers = mesh.build(6, 3)
    for topic in (SECRET, OPEN, "other"):
        mesh.publish(brokers[0], topic, 1)
    mesh.run(2)
    mesh.obey(POLICY)
    late = mesh.client(brokers[3], "#")
    mesh.run(2)
    assert [got.topic for got in late.got] == ["other"]
    mesh.publish(brokers[3], SECRET, 1)
    mesh.run(1)
    again = mesh.client(brokers[3], "#")
    mesh.run(1)
    assert sorted(got.topic for got in again.got) == [SECRET, "other"]


def test_a_forbidden_broker_gives_nothing_to_its_own_subscribers_either() -> None:
    """Not what is published there, not what is retained there, not by turns."""
    mesh = Policed(5)
    (broker,) = mesh.build(1)
    mesh.publish(broker, SECRET, 0)
    early = mesh.client(broker, "city/#")
    mesh.run(1)
    assert [got.topic for got in early.got] == [SECRET]
    mesh.hubs[broker].routes.obey(lambda topic: topic != SECRET)
    late = [mesh.client(broker, topic_filter) for topic_filter in ("city/#", "$share/g/city/#")]
    mesh.publish(broker, SECRET, 1)
    mesh.publish(broker, OPEN, 1)
    mesh.run(1)
    assert [got.topic for got in early.got] == [SECRET, OPEN]
    assert [[got.topic for got in client.got] for client in late] == [[OPEN], [OPEN]]
