"""The numbers on a link stand for what this very connection has been told, whatever happens in the turn of a broker's
event loop in which its end is noticed."""

from __future__ import annotations

import msgspec
import pytest

from saps.messages import Message
from saps.overlay.delivery.forwarding import NUMBERS_KEPT
from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Announce, Announced
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, Publish
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import Batch
from saps.simulator import SimBroker, Simulation

pytestmark = pytest.mark.simulation

TOPIC = "a/b"


def mesh() -> tuple[Simulation, SimBroker, list[SimBroker]]:
    """A publisher whose stream is open, and its subscribers."""
    simulation = Simulation(1)
    publisher, *subscribers = simulation.build(5)
    ready: list[str] = []
    for broker in subscribers:
        broker.subscribe(TOPIC, lambda name=broker.name: ready.append(name))  # type: ignore[misc]
    simulation.run_until(lambda: len(ready) == len(subscribers))
    publisher.publish(TOPIC, b"opens", 1)
    simulation.run(5.0)
    assert all([message.payload for _, message in broker.delivered] == [b"opens"] for broker in subscribers)
    return simulation, publisher, subscribers


def links(publisher: SimBroker) -> dict[BrokerRef, list[Frame]]:
    """What is about to be sent, by receiver."""
    found: dict[BrokerRef, list[Frame]] = {}
    for to, frame in publisher.node.port.outbox:
        found.setdefault(to, []).append(frame)
    return found


def check_defined(frames: list[Frame]) -> None:
    """Whoever reads this, and nothing before it, understands it."""
    brokers, slices = set[int](), {0}
    for frame in frames:
        if isinstance(frame, DefineBroker):
            brokers.add(frame.number)
        elif isinstance(frame, DefineSlice):
            assert brokers.issuperset(frame.brokers)
            slices.add(frame.number)
        elif isinstance(frame, Publish):
            assert frame.origin in brokers
            assert frame.slice in slices


@pytest.mark.parametrize("qos", [0, 1])
def test_what_waits_for_a_link_that_breaks_does_not_leave_by_the_next_one(qos: int) -> None:
    simulation, publisher, subscribers = mesh()
    child = next(branch.child for branch in publisher.node.rendezvous.publishers.streams[TOPIC].way.branches)

    def act() -> None:
        publisher.node.mesh.publish(Batch.of(Message(TOPIC, b"before", qos)), None)
        assert child in links(publisher)
        publisher.node.link_down(child)
        check_defined(links(publisher).get(child, []))
        publisher.node.mesh.publish(Batch.of(Message(TOPIC, b"after", qos)), None)
        check_defined(links(publisher).get(child, []))

    simulation._wires.link(publisher.name, child.name).session += 1
    publisher.act(act)
    simulation.run(10.0)
    for broker in subscribers:
        came = [message.payload for _, message in broker.delivered]
        assert came == (sorted(set(came), key=came.index))
        assert qos == 0 or came == [b"opens", b"before", b"after"]


def test_a_later_life_is_told_the_numbers_anew() -> None:
    """Others have told of it, and the link to the earlier one has not broken yet."""
    _, publisher, subscribers = mesh()
    earlier = subscribers[0].ref
    later = msgspec.structs.replace(earlier, incarnation=earlier.incarnation + 100)
    node = publisher.node
    node.rendezvous.publishers.announced(Announce([Announced(TOPIC, 1)], later, present=True))
    node.mesh.publish(Batch.of(Message(TOPIC, b"x", 1)), None)
    assert later in links(publisher)
    check_defined(links(publisher)[later])


def test_the_numbers_of_a_sender_that_is_cut_off_now_and_then_are_kept() -> None:
    """It goes on by the same connection after each cut: the network has lost none of what it sent."""
    simulation, publisher, subscribers = mesh()
    taken = next(branch.child for branch in publisher.node.rendezvous.publishers.streams[TOPIC].way.branches)
    child = next(broker for broker in subscribers if broker.ref == taken)
    for pause in (NUMBERS_KEPT / 2, NUMBERS_KEPT / 2 - 0.1):
        child.act(lambda: child.node.delivery.multicast.forget(publisher.ref, over=False))
        simulation.run(pause)
    child.node.port.detector._dead[publisher.name] = publisher.ref  # and has not answered a probe yet
    simulation.run(0.2)
    assert publisher.name in child.node.delivery.multicast.forwarder._inbound


def test_the_numbers_of_a_later_life_outlive_the_earlier_one() -> None:
    _, publisher, subscribers = mesh()
    simulation = publisher.simulation
    receiver = subscribers[0]
    simulation.crash(publisher.name)
    simulation.run(5.0)
    again = simulation.add(publisher.name, "c0", receiver.name)
    simulation.run_until(lambda: again.joined)
    for number in range(30):
        again.publish(TOPIC, b"%d" % number, 1)
        simulation.run(5.0)
    assert again.name in receiver.node.delivery.multicast.forwarder._inbound
    came = [message.payload for _, message in receiver.delivered]
    assert came == [b"opens", *(b"%d" % number for number in range(30))]
