"""Switches with less room than their budget says: what was refused, what stays, what is tried again."""

from __future__ import annotations

import pytest

from saps.ofm.flows.budget import LEARNT
from saps.ofm.network.topology import Port, Topology
from saps.ofm.northbound.schema import Status
from saps.ofm.openflow.base import BASE_FLOWS
from tests.ofm.controller.worlds import World
from tests.ofm.networks import OUTSIDER, Network, broker_at

ENTRIES_OF_A_TREE = 2
"""At one switch with two brokers."""
BASE = len(BASE_FLOWS) + 1


@pytest.fixture
def world() -> World:
    """One switch, which has room for two trees, and two brokers."""
    topology = Topology()
    topology.switch_up(1, [OUTSIDER])
    brokers = [broker_at(0, 6000), broker_at(1, 6001)]
    for number, broker in enumerate(brokers, 1):
        topology.attach(broker, *Port(1, number))
    world = World(Network(topology, brokers), capacity=BASE + 2 * ENTRIES_OF_A_TREE)
    world.appear()
    world.settle()
    for topic in ("a", "b"):
        world.intent(topic, brokers)
    world.run()
    assert {state.status for state in world.told.values()} == {Status.CONSTRUCTED}
    return world


def status(world: World, topic: str) -> Status:
    return world.told[topic].status


def test_a_tree_that_is_refused_does_not_touch_the_others(world: World) -> None:
    versions = {topic: state.version for topic, state in world.told.items()}
    world.intent("c", world.network.brokers)
    world.run()
    assert status(world, "c") is Status.REFUSED
    assert {topic: world.told[topic].version for topic in versions} == versions, "a state was told anew"
    world.check_truth()


def test_the_limit_is_learnt_so_the_switch_is_not_asked_again(world: World) -> None:
    world.intent("c", world.network.brokers)
    world.run()
    assert world.machine.ledger.budget(1).entries == 2 * ENTRIES_OF_A_TREE
    applied = world.applied
    world.intent("d", world.network.brokers)
    world.run()
    assert world.told["d"].reason == "switch 0000000000000001 would need 6 flow entries; its budget is 4"
    assert world.applied == applied


def test_what_was_refused_is_built_when_there_is_room(world: World) -> None:
    world.intent("c", world.network.brokers)
    world.run()
    world.forget("a")
    world.run()
    assert status(world, "c") is Status.CONSTRUCTED
    world.check_truth()


def test_a_limit_is_not_believed_for_ever(world: World) -> None:
    """Others had entries there, which have gone since."""
    world.tick(0.0)
    world.intent("c", world.network.brokers)
    world.run()
    world.fabric.switches[1].capacity = None
    world.tick(LEARNT - 1)
    world.run()
    assert status(world, "c") is Status.REFUSED
    world.tick(LEARNT)
    world.run()
    assert status(world, "c") is Status.CONSTRUCTED
