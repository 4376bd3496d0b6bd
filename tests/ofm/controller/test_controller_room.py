"""Switches with less room than their budget says: what was refused, what stays, what is tried again."""

from __future__ import annotations

import pytest

from saps.ofm.flows.budget import LEARNT
from saps.ofm.flows.plan import COOKIE
from saps.ofm.flows.switch_state import SwitchState, part_of
from saps.ofm.flows.tables import Flow, Match, Output, Tables
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


def test_what_shares_a_batch_with_a_refused_tree_still_carries() -> None:
    """It is as before or as wished, whatever of the batch was done; only what was refused is in doubt."""
    one, other = (Tables.of([Flow(1, Match.of(in_port=1), (), cookie=COOKIE | part)]) for part in (1, 2))
    changed = Tables.of([Flow(1, Match.of(in_port=1), (Output(2),), cookie=COOKIE | 1)])
    state = SwitchState(Tables())
    state.read(Tables())
    state.want(1, one)
    state.batch()
    state.done()
    state.want(1, changed)
    state.want(2, other)
    changes, _ = state.batch()
    assert state.refused(next(change for change in changes if part_of(change) == 2)) == [2]
    assert state.assured(1)
    assert not state.assured(2)
    assert not state.settled(1), "it is not known before the switch has been read"


def test_a_switch_that_restarts_with_more_room_is_asked_again(world: World) -> None:
    world.intent("c", world.network.brokers)
    world.run()
    world.disconnect(1)
    world.fabric.restart(1).capacity = None
    world.connect(1)
    world.run()
    assert status(world, "c") is Status.CONSTRUCTED
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


def test_what_an_earlier_run_has_left_is_no_room(world: World) -> None:
    """A tree of an earlier run, which nobody has asked for yet, keeps another one out: it is not tried for ever."""
    world.start()
    world.appear()
    for topic in ("a", "c"):
        world.intent(topic, world.network.brokers)
    world.run()
    assert world.machine.ledger.budget(1).entries == ENTRIES_OF_A_TREE
    assert status(world, "a") is Status.CONSTRUCTED
    assert status(world, "c") is not Status.CONSTRUCTED
    world.settle()
    world.run()
    world.tick(LEARNT)
    world.run()
    assert status(world, "c") is Status.CONSTRUCTED
    world.check_truth()


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
