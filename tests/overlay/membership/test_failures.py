"""Failures one by one, in virtual time: a host that vanishes, a broker that is cut off with its neighbours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from saps.overlay.frames.base import Frame
from saps.overlay.frames.ring import Ping
from saps.overlay.membership.failure_detector import Detector, DetectorSettings
from saps.overlay.membership.members import Members
from saps.overlay.ring.keys import BrokerRef, KeyOrder, filter_key
from saps.simulator import Simulation

DEFAULTS = DetectorSettings()


class Clock:
    """The part of a broker's port that the detector uses."""

    me = BrokerRef("me", 1, "", "c")
    order = KeyOrder.ALM_LA
    grace = 1.0

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[str, Frame]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def send(self, to: BrokerRef, frame: Frame) -> None:
        self.sent.append((to.name, frame))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.timers.append((self.now + delay, action))

    def wall(self) -> float:
        return self.now


def test_a_frame_sent_just_after_a_sign_of_life_is_followed_up() -> None:
    clock, dead = Clock(), list[BrokerRef]()
    detector = Detector(clock, DEFAULTS, lambda _: False, dead.append, Members(clock, clock.wall))  # type: ignore[arg-type]
    peer = BrokerRef("peer", 1, "", "c")
    detector.heard(peer)
    detector.tick([peer])
    clock.now = 0.6
    detector.heard(peer)
    addressed = [(peer, 0.7)]  # ... and then the peer's host vanishes
    while not dead and clock.now < 10:
        clock.now += DEFAULTS.heartbeat
        detector.tick([], addressed)
        addressed = []
    assert ("peer", Ping()) in clock.sent
    assert dead == [peer]


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(6))
def test_a_host_that_vanishes_is_given_up_by_its_neighbours_in_time(seed: int) -> None:
    def vanish(simulation: Simulation, name: str) -> None:
        simulation.partition([name])

    given_up_by_its_neighbours(seed, vanish, DEFAULTS.suspect_after + DEFAULTS.heartbeat + 0.1)


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(6))
def test_a_broker_whose_links_break_is_given_up_without_waiting_for_a_heartbeat(seed: int) -> None:
    given_up_by_its_neighbours(seed, Simulation.crash, DEFAULTS.dead_after + 0.1)


def given_up_by_its_neighbours(seed: int, strike: Callable[[Simulation, str], None], within: float) -> None:
    simulation = Simulation(seed)
    brokers = simulation.build(8, 2)
    simulation.run(3)
    victim = brokers[seed]
    neighbours = [simulation.brokers[name] for name in victim.node.graph.neighbours()]
    strike(simulation, victim.name)
    simulation.run(within)
    assert neighbours
    assert all(broker.node.port.lost(victim.ref) for broker in neighbours)


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(8))
def test_a_broker_that_loses_all_its_neighbours_finds_the_others_again(seed: int) -> None:
    """Its island is whole in itself, so only a ring probe can tell; until then it must take nothing for complete."""
    simulation = Simulation(seed)
    brokers = simulation.build(12, 3)
    for broker in brokers:
        broker.subscribe("a")
    simulation.run(2)
    newcomer = simulation.add("b5x", "c0", brokers[5].name)
    simulation.run_until(lambda: newcomer.joined)
    simulation.run(1)
    for name in newcomer.node.graph.neighbours():
        simulation.crash(name)
    newcomer.publish("a", b"x", 1)
    simulation.run(12)
    simulation.check_ring()
    for broker in simulation.alive():
        if broker is not newcomer:
            assert [message.payload for _, message in broker.delivered] == [b"x"], broker.name


def test_a_key_that_is_back_unseen_is_linked_again() -> None:
    """Its left neighbour has missed that it was taken out, and knows its former stay: once that went on for ever."""
    simulation = Simulation(1)
    _, second, _ = simulation.build(3)
    second.subscribe("t")
    simulation.run(2)
    key = filter_key("t", second.ref, simulation.nodes.order)
    node = second.node.graph.nodes[key]
    node.ref = node.ref._replace(stay=node.ref.stay + 1)
    simulation.run(5)
    simulation.check_ring()
    links = [n.right[0] for broker in simulation.alive() for n in broker.node.graph.nodes.values()]
    assert [link for link in links if link is not None and link.key == key] == [node.ref]
