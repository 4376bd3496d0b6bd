"""Brokers that do not hear each other, though others hear both."""

from __future__ import annotations

import os

import pytest

from saps.overlay.frames.framing import packed
from saps.overlay.frames.ring import Ping, Relay, RingSplit
from saps.overlay.membership import detours
from saps.overlay.ring.keys import Key, Ref
from saps.simulator import SimBroker, Simulation
from tests import marks
from tests.overlay.ordeals import ring

pytestmark = pytest.mark.simulation
COUNT = int(os.environ.get("REPLICA_SCHEDULES", "2"))


def between_two(seed: int = 1, brokers: int = 5) -> tuple[Simulation, SimBroker, SimBroker]:
    """A mesh in which one broker takes a topic that another one publishes to; these two do not hear each other."""
    simulation = Simulation(seed)
    one, two, *_ = simulation.build(brokers)
    two.subscribe("t")
    simulation.run(2)
    one.publish("t", b"before", 1)
    simulation.run(1)
    simulation.partition(pairs=[(one.name, two.name)])
    return simulation, one, two


def came(broker: SimBroker) -> list[bytes]:
    return [message.payload for _, message in broker.delivered]


def test_a_broker_that_is_not_heard_is_reached_through_another() -> None:
    simulation, one, two = between_two()
    with marks.expect("reached through another broker"):
        simulation.run(3)
    one.publish("t", b"meanwhile", 1)
    simulation.run(1)
    assert came(two) == [b"before", b"meanwhile"]
    assert not one.node.port.lost(two.ref)
    assert not two.node.port.lost(one.ref)
    with marks.expect("reached directly again"):
        simulation.heal()
        simulation.run(1)
    one.publish("t", b"after", 1)
    simulation.run(1)
    assert came(two) == [b"before", b"meanwhile", b"after"]
    assert not one.node.peers.detours.ways
    assert not two.node.peers.detours.ways


@pytest.mark.parametrize("seed", range(4))
def test_what_is_published_while_ways_change_comes_once_and_in_order(seed: int) -> None:
    """The cut comes and goes, and a relay dies in between."""
    simulation, one, two = between_two(seed)
    told: list[bytes] = []

    def publish(seconds: float) -> None:
        end = simulation.now + seconds
        while simulation.now < end:
            told.append(b"%d" % len(told))
            one.publish("t", told[-1], 1)
            simulation.run(0.02)

    publish(3)
    with marks.expect("detour lapsed"):
        simulation.crash(one.node.peers.detours.ways[two.ref].relay.name)
        publish(3)
    simulation.heal()
    publish(0.5)
    simulation.partition(pairs=[(one.name, two.name)])
    publish(3)
    simulation.heal()
    publish(1)
    simulation.run(3)
    assert came(two) == [b"before", *told]


def test_a_broker_that_is_dead_to_all_is_dead() -> None:
    simulation, one, two = between_two()
    simulation.heal()
    simulation.crash(two.name)
    simulation.run(3)
    assert one.node.port.lost(two.ref)
    assert not one.node.peers.detours.ways


@pytest.mark.parametrize("raw", [b"\xff", packed(Ping())[:-1], packed(RingSplit(Ref(Key(b"t"), None, 1)))])  # type: ignore[arg-type]
def test_frames_that_cannot_be_read_end_their_path_only(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    simulation, one, two = between_two()
    simulation.run(3)
    way = one.node.peers.detours.ways[two.ref]
    relay = simulation.brokers[way.relay.name]
    relay.act(lambda: relay.node.port.send(two.ref, Relay(two.ref, one.ref, way.path, [raw])))
    simulation.run(0.1)
    assert "path from b0" in caplog.text
    simulation.run(3)
    one.publish("t", b"after", 1)
    simulation.run(1)
    assert came(two) == [b"before", b"after"]


@pytest.mark.parametrize("disks", [False, True], ids=["memory", "disks"])
@pytest.mark.parametrize("seed", [3, 26, 57, 81, *range(1000, 1000 + COUNT)])
def test_a_ring_of_brokers_costs_nothing(seed: int, disks: bool) -> None:
    """3, 57: announcements did not come to all, and messages were lost. 26: an acknowledgement that was lost as the way
    changed was awaited for ever. 81: a frame of a former path ended the link session behind it."""
    ring(seed, disks)


@marks.expect(
    "a broker that is lost here only belongs beside a node", "asked again what a broker wants that was told long ago"
)
def test_a_ring_without_detours_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with brokers of an earlier version. The ages of a session's former brokers came late, were taken for greater
    than they were, and what was published in between was lost (`make chaos`)."""
    monkeypatch.setattr(detours, "ASKED", 0)
    ring(148, disks=True)
