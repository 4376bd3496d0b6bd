"""The reproduction's trees are those of the product: of the protocol's own links, of `cut`, of `divide`."""

from __future__ import annotations

import random
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.saps_paper.overlays import Setting, members, multicast, ofm_on_line, ofm_on_tree
from research.saps_paper.splits import VECTOR_BITS, Ints, crossings, parents
from research.saps_paper.switches import shared_tree
from saps.overlay.delivery.tree import vector_of
from saps.overlay.frames.base import Frame
from saps.overlay.frames.delivery import Publish
from saps.overlay.port import Port
from saps.overlay.rendezvous.range_calls import cut
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, filter_key, membership, place, subscribers
from saps.overlay.ring.routing import Node
from saps.simulator import SimBroker, Simulation

TOPIC = "t"
SETTINGS = st.builds(Setting, st.integers(1, 20), st.integers(1, 80), st.sampled_from([None, 1, 4]))


class _AllReachable:
    def reachable(self, broker: object) -> bool:
        return True


def vectors(values: list[int]) -> Ints:
    return np.array([value >> (64 - VECTOR_BITS) for value in values], np.int64)


def steady(simulation: Simulation) -> list[Node]:
    """The nodes of the topic's range, in the order of their keys, after everything has settled."""
    for broker in simulation.brokers.values():
        broker.subscribe(TOPIC)
        simulation.run(0.3)
    simulation.run(30.0)
    low, high = subscribers(TOPIC)
    nodes = [node for broker in simulation.alive() for node in broker.node.graph.nodes.values()]
    return sorted((node for node in nodes if low <= node.key < high), key=lambda node: node.key)


@pytest.mark.simulation
@pytest.mark.parametrize("order", [KeyOrder.ALM, KeyOrder.ALM_LA])
def test_the_protocols_own_links_are_cut_into_the_same_tree(order: KeyOrder) -> None:
    simulation = Simulation(random.Random(order).randrange(10**6), order=order, check=False)
    simulation.build(40, clusters=4)
    nodes = steady(simulation)
    assert len(nodes) == 40
    at = {node.key: i for i, node in enumerate(nodes)}
    assert [node.key for node in nodes] == sorted(filter_key(TOPIC, node.ref.broker, order) for node in nodes)

    sender = [-1] * len(nodes)
    port = cast(Port, _AllReachable())
    todo: list[tuple[Key, Key]] = [(nodes[0].key, subscribers(TOPIC).high)]
    while todo:
        low, high = todo.pop()
        for ref, stop in cut(nodes[at[low]], low, high, port):
            sender[at[ref.key]] = at[low]
            todo.append((ref.key, stop))
    assert sender == parents(vectors([membership(node.key) for node in nodes]), 0).tolist()


class _Crossings(Simulation):
    """Counts the publications' messages between brokers of different clusters."""

    crossed = 0

    def _send(self, source: SimBroker, to: BrokerRef, frame: Frame) -> None:
        self.crossed += isinstance(frame, Publish) and source.ref.cluster != to.cluster
        super()._send(source, to, frame)


@pytest.mark.simulation
@pytest.mark.parametrize("qos", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_running_brokers_send_one_copy_to_each_foreign_cluster(qos: int) -> None:
    simulation = _Crossings(1, order=KeyOrder.CLUSTER, check=False)
    simulation.build(40, clusters=8)
    steady(simulation)
    for i, (name, publisher) in enumerate(simulation.brokers.items(), start=1):
        publisher.publish(TOPIC, name.encode(), qos)
        simulation.run(5.0)
        assert simulation.crossed == 7 * i
        assert sum(len(broker.delivered) for broker in simulation.alive()) == 39 * i


@given(
    SETTINGS,
    st.integers(0, 1 << 32),
    st.sampled_from([KeyOrder.ALM, KeyOrder.ALM_LA]),
)
def test_the_product_divides_members_into_the_same_tree(setting: Setting, seed: int, order: KeyOrder) -> None:
    rng = np.random.default_rng(seed)
    everyone = sorted(members(setting, rng), key=lambda broker: (place(broker, order), broker.name))
    publisher = int(rng.integers(len(everyone)))
    cluster = np.array([int(broker.cluster) for broker in everyone])
    parent = parents(vectors([vector_of(broker.name) for broker in everyone]), publisher)
    tree = multicast(everyone[publisher], everyone, order)
    ours = sorted((tree.cluster[p], tree.cluster[n]) for n, p in enumerate(tree.parent) if p >= 0)
    theirs = sorted((int(cluster[p]), int(cluster[n])) for n, p in enumerate(parent) if p >= 0)
    assert ours == theirs

    crossed, depth = [0] * len(tree.parent), [0] * len(tree.parent)
    for node in range(1, len(tree.parent)):
        sender = tree.parent[node]
        crossed[node] = crossed[sender] + (tree.cluster[sender] != tree.cluster[node])
        depth[node] = depth[sender] + 1
    copies = sum(a != b for a, b in ours)
    assert crossings(parent, cluster, publisher) == (copies, max(crossed), max(depth))


@given(SETTINGS, st.integers(0, 1 << 32))
def test_ofm_sends_as_many_messages_as_the_products_tree_has_links(setting: Setting, seed: int) -> None:
    everyone = members(setting, np.random.default_rng(seed))
    tree = multicast(everyone[0], everyone, KeyOrder.ALM_LA)
    assert ofm_on_tree(tree).traffic == len(shared_tree("tree", setting.clusters, everyone).links)
    assert ofm_on_line(tree).traffic == len(shared_tree("line", setting.clusters, everyone).links)
