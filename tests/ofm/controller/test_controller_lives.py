"""Lives of a controller that once went wrong, in their shortest form (found by `test_controller_machine`)."""

from __future__ import annotations

from saps.ofm.controller.events import HostMoved, Intended, Intent, LinkChanged, SwitchDown, SwitchGone, SwitchUp
from saps.ofm.controller.saved import Saver
from saps.ofm.flows.tables import Tables
from saps.ofm.network.topology import BrokerAddress, Link, Port, Topology
from saps.ofm.northbound.schema import Status
from saps.ofm.openflow.base import BASE_FLOWS
from tests.ofm.controller.worlds import World, rules
from tests.ofm.networks import Network, broker_at

TOPIC = "alert/fire"


def line(*places: int) -> tuple[Network, list[Link]]:
    """Switches 1 to n in a row, a broker at port 10 of each of these."""
    topology = Topology()
    for dpid in range(1, max(places) + 1):
        topology.switch_up(dpid)
    links = [Link.of(Port(dpid, 2), Port(dpid + 1, 1)) for dpid in range(1, max(places))]
    for link in links:
        topology.link_up(*link)
    brokers = [broker_at(number, 6000) for number in range(len(places))]
    for broker, dpid in zip(brokers, places, strict=True):
        topology.attach(broker, dpid, 10)
    return Network(topology, brokers), links


def begun(network: Network, capacity: int | None = None) -> World:
    """All is connected, read and settled."""
    world = World(network, rules(), capacity)
    world.appear()
    world.settle()
    world.run()
    return world


def told(world: World) -> list[BrokerAddress]:
    """The brokers that are told to be connected."""
    return world.machine.state(TOPIC).brokers


def test_a_link_that_fails_during_an_update_connects_nobody_any_more() -> None:
    network, links = line(1, 2, 3, 4)
    one, two, three, _ = network.brokers
    world = begun(network)
    world.intent(TOPIC, [one, two, three])
    world.run()
    assert told(world) == [one, two, three]
    world.intent(TOPIC, network.brokers)
    world.step(min(world.todo))
    assert told(world) == [one, two, three], "who stays, stays connected"
    world.set_link(links[1], up=False)
    world.check_truth()
    assert told(world) == [one, two], "what hangs on the link is told at once, not when the update is done"
    world.run()
    world.check_truth()
    world.set_link(links[1], up=True)
    world.run()
    assert (world.machine.state(TOPIC).status, told(world)) == (Status.CONSTRUCTED, network.brokers)
    world.check_truth()


def test_a_broker_that_moves_during_an_update_is_not_connected_until_the_tree_has_followed() -> None:
    network, _ = line(1, 2, 3, 4)
    one, two, three, _ = network.brokers
    world = begun(network)
    world.intent(TOPIC, [one, two, three])
    world.run()
    world.intent(TOPIC, network.brokers)
    world.step(min(world.todo))
    world.move(one.mac, Port(3, 11))
    world.check_truth()
    assert told(world) == [two, three]
    world.run()
    assert (world.machine.state(TOPIC).status, told(world)) == (Status.CONSTRUCTED, network.brokers)
    world.check_truth()


def test_an_ofm_on_its_way_out_does_not_wait_for_what_a_switch_refuses() -> None:
    """A switch that comes back empty and smaller is to hold a stage of the deletion, and has no room for it."""
    network, _ = line(1, 2, 3)
    world = begun(network)
    world.hear(Intended(TOPIC, Intent(frozenset(network.brokers))))
    world.run()
    world.forget(TOPIC)
    world.disconnect(2)
    world.fabric.restart(2).capacity = len(BASE_FLOWS) + 2
    world.connect(2)
    world.run()
    assert world.machine.state(TOPIC).status is Status.NONE
    assert all(not switch.tables.groups for switch in world.fabric.switches.values())


def restarted(world: World) -> None:
    """The controller starts anew with the state that the former one kept."""
    world.start(Saver(world.machine).save())


def test_a_broker_whose_port_was_removed_while_no_controller_ran_is_looked_for() -> None:
    network, links = line(1, 2)
    one, two = network.brokers
    world = World(network)
    for dpid in (1, 2):
        world.truth.port_status(dpid, 10, up=True)
    world.appear()
    world.settle()
    world.intent(TOPIC, [one, two])
    world.run()
    world.truth.port_status(1, 10, up=None)
    restarted(world)
    assert world.machine.missing == [one, two], "either may have moved meanwhile"
    world.appear([LinkChanged(links[0], up=True), HostMoved(two.mac, Port(2, 10))])
    world.settle()
    world.run()
    assert (world.machine.missing, told(world)) == ([one], [two])


def test_a_packet_on_its_way_does_not_take_a_broker_of_an_earlier_run_out_of_its_tree() -> None:
    network, links = line(1, 2)
    one, two = network.brokers
    world = begun(network)
    world.intent(TOPIC, [one, two])
    world.run()
    restarted(world)
    world.connect(2)
    world.hear(HostMoved(one.mac, links[0].b))  # before the link is found
    assert one in world.machine.missing, "it may have been seen anywhere"
    world.connect(1)
    world.hear(HostMoved(one.mac, None))  # the port leads to a switch
    world.run()
    assert told(world) == [one, two]


def test_strangers_and_topics_that_come_and_go_leave_nothing_behind() -> None:
    network, _ = line(1, 2)
    world = begun(network)
    machine = world.machine
    assert machine.touched is None, "nobody reads it"
    for dpid in range(10, 30):
        for event in (SwitchUp(dpid, {1: True}), SwitchDown(dpid), SwitchGone(dpid)):
            world.hear(event)
        world.intent(f"t/{dpid}", network.brokers)
        world.run()
        world.forget(f"t/{dpid}")
        world.run()
    assert machine.network.switch_states.keys() == machine.network.table_counts.keys() == {1, 2}
    assert (machine.records, machine.touched) == ({}, None)


def test_a_switch_that_is_gone_for_long_still_holds_what_it_shall_when_it_is_back() -> None:
    network, _ = line(1, 2)
    world = begun(network)
    world.intent(TOPIC, network.brokers)
    world.run()
    for dpid in (1, 2):
        world.disconnect(dpid)
        world.hear(SwitchGone(dpid))
    world.forget(TOPIC)
    world.intent("other", network.brokers)
    world.appear()
    world.run()
    assert world.machine.state("other").status is Status.CONSTRUCTED
    for dpid, switch in world.fabric.switches.items():
        wanted = world.machine.network.baseline.with_(world.machine.ledger.desired(dpid))
        assert switch.tables == Tables.of(BASE_FLOWS).with_(wanted)


def test_a_switch_that_takes_the_place_of_one_without_meters_gets_them() -> None:
    network, _ = line(1, 2)
    world = World(network, rules(limit=100), most_meters=0)
    world.appear()
    world.settle()
    world.intent(TOPIC, network.brokers)
    world.run()
    assert not world.fabric.switches[1].tables.meters
    world.disconnect(1)
    world.hear(SwitchGone(1))
    world.fabric.restart(1).meters.most = None
    world.connect(1)
    for event in world.discover():
        world.hear(event)
    world.run()
    assert world.machine.state(TOPIC).status is Status.CONSTRUCTED
    assert world.fabric.switches[1].tables.meters
    assert not world.fabric.switches[2].tables.meters
