"""No packet of a forbidden topic passes a switch of a forbidden cluster, on software switches, whatever happens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from saps.ofm.controller.events import PolicyChanged
from saps.ofm.network.topology import BrokerAddress, Port, Topology
from saps.ofm.northbound.schema import Status
from saps.policy.model import Policy, Verdict
from tests.ofm.controller.worlds import World
from tests.ofm.networks import Network, broker_at, networks, sent_by

SECRET, FREE = "city/health/beds", "city/air"


def policy(*barred: int, version: int = 1, known: bool = True) -> Policy:
    """The health topics must not be carried by these switches, which are a cluster."""
    health = {"city/health": Verdict(clusters=frozenset({"osaka"}))}
    switches = {"osaka/ward1": frozenset(barred)} if known else {}
    return Policy(version, health, switches)


def passed(world: World, topic: str, sender: BrokerAddress) -> set[int]:
    """The switches that a packet of this sender passes after its own, or leaves the network at."""
    plan = world.machine.records[topic].plan
    if plan is None:
        return set()
    outcome = world.fabric.send(world.places[sender], sent_by(sender, plan.ofm))
    return {end.dpid for pair in outcome.crossed for end in pair} | {arrival.at.dpid for arrival in outcome.receiver}


@settings(max_examples=30)
@given(
    network=networks(least=4), data=st.data(), barred=st.frozensets(st.integers(1, 7), min_size=1, max_size=3),
    first=st.booleans(),
)  # fmt: skip
def test_the_trees_keep_out_of_forbidden_clusters(
    network: Network, data: st.DataObject, barred: frozenset[int], first: bool
) -> None:
    """Whether the policy or the wish comes first, and when a link breaks afterwards."""
    world = World(network)
    world.appear()
    world.settle()
    members = data.draw(st.frozensets(st.sampled_from(network.brokers), min_size=2))
    if first:
        world.hear(PolicyChanged(policy(*barred)))
    for topic in (SECRET, FREE):
        world.intent(topic, members)
    world.run()
    if not first:
        world.hear(PolicyChanged(policy(*barred)))
        world.run()
    check(world, members, barred)
    if world.all_links:
        world.set_link(data.draw(st.sampled_from(world.all_links)), up=False)
        world.run()
        check(world, members, barred)
    world.hear(PolicyChanged(policy(version=2)))
    world.run()
    check(world, members, frozenset())


def check(world: World, members: frozenset[BrokerAddress], barred: frozenset[int]) -> None:
    for sender in world.network.brokers:
        assert not passed(world, SECRET, sender) & barred
    state, free = world.machine.state(SECRET), world.machine.state(FREE)
    if state.status is Status.CONSTRUCTED:
        assert set(state.brokers) == members
        assert not {world.places[broker].dpid for broker in members} & barred
    elif state.status is Status.REFUSED:
        assert state.reason is not None
        assert state.reason.startswith("policy 1 forbids osaka to carry 'city/health/beds', ")
    else:
        assert free.status is state.status, "what the network cannot do, it cannot do without the policy either"
    if free.status is Status.CONSTRUCTED:
        assert set(free.brokers) == members


def test_a_refusal_says_who_cannot_be_reached() -> None:
    """A line of three switches, the middle one barred; then nobody knows the cluster's switches."""
    world = line()
    left, _, right = world.network.brokers
    world.intent(SECRET, [left, right])
    world.hear(PolicyChanged(policy(2)))
    world.run()
    state = world.machine.state(SECRET)
    assert (state.status, state.reason) == (
        Status.REFUSED,
        f"policy 1 forbids osaka to carry 'city/health/beds', and no other path leads to {right.mac}",
    )
    world.hear(PolicyChanged(policy(version=2, known=False)))
    world.run()
    assert world.machine.state(SECRET).reason == "no policy file names the switches of cluster osaka"
    assert world.machine.records[SECRET].plan is None
    world.hear(PolicyChanged(Policy(3)))
    world.run()
    assert world.machine.state(SECRET).status is Status.CONSTRUCTED


def test_a_broker_in_a_forbidden_cluster_is_named_and_the_others_have_their_tree_without_it() -> None:
    world = line()
    left, middle, right = world.network.brokers
    world.hear(PolicyChanged(policy(3)))
    world.intent(SECRET, [left, middle, right])
    world.run()
    reason = f"policy 1 forbids osaka to carry 'city/health/beds', and no other path leads to {right.mac}"
    assert world.machine.state(SECRET).reason == reason
    world.intent(SECRET, [left, middle])
    world.run()
    assert world.machine.state(SECRET).status is Status.CONSTRUCTED


def line() -> World:
    """Switches 1 - 2 - 3, a broker at each, all connected."""
    topology = Topology()
    topology.link_up(Port(1, 2), Port(2, 1))
    topology.link_up(Port(2, 2), Port(3, 1))
    brokers = [broker_at(dpid, 6000) for dpid in (1, 2, 3)]
    for dpid, broker in enumerate(brokers, 1):
        topology.attach(broker, dpid, 9)
    world = World(Network(topology, brokers))
    world.appear()
    world.settle()
    return world
