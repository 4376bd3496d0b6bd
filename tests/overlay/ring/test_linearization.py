"""Two rings that know of each other in one place become one, whatever the levels above say, without any timer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from saps.overlay.frames.base import Frame
from saps.overlay.frames.ring import SetLeft
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, Ref, publisher_key
from saps.overlay.ring.routing import Node, State
from saps.overlay.ring.skip_graph import SkipGraph
from tests import marks


class Wire:
    """Carries frames between graphs: in order between two of them, otherwise in any order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.graphs: dict[str, SkipGraph] = {}
        self.queues: dict[tuple[str, str], deque[tuple[BrokerRef, Frame]]] = {}
        self.carried = 0

    def run(self, limit: int, until: Callable[[], bool] = lambda: False) -> None:
        """Until nothing is under way any more. AssertionError if that does not happen."""
        while not until() and (waiting := [way for way, queue in self.queues.items() if queue]):
            way = self.rng.choice(waiting)
            sender, frame = self.queues[way].popleft()
            self.carried += 1
            assert self.carried < limit, "it does not come to an end"
            self.graphs[way[1]].handle(sender, frame)


class End:
    """One broker's port."""

    order = KeyOrder.ALM_LA
    grace = 1.0
    now = 0.0
    first_heard: Mapping[str, tuple[int, float]] = {}

    def __init__(self, me: BrokerRef, wire: Wire) -> None:
        self.me = me
        self._wire = wire

    def send(self, to: BrokerRef, frame: Frame) -> None:
        self._wire.queues.setdefault((self.me.name, to.name), deque()).append((self.me, frame))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        pass

    def lost(self, broker: BrokerRef) -> bool:
        return False

    def reachable(self, broker: BrokerRef) -> bool:
        return True


class Rings:
    """Some rings over the keys of some brokers, each broker with all its keys in one of them."""

    def __init__(self, rng: random.Random, sides: list[int], topics: int) -> None:
        self.rng = rng
        self.wire = Wire(rng)
        self.of_side: dict[int, list[Node]] = {}
        for number, side in enumerate(sides):
            me = BrokerRef(f"b{number}", 1, "", f"c{number % 3}")
            graph = self.wire.graphs[me.name] = SkipGraph(End(me, self.wire))
            for topic in rng.sample(range(topics), rng.randint(1, topics)):
                key = publisher_key(str(topic), me, End.order)
                node = graph.nodes[key] = Node(Ref(key, me, 1), 0.0)
                node.state = State.LINKED
                graph.into_order(node)
                self.of_side.setdefault(side, []).append(node)
        for nodes in self.of_side.values():
            nodes.sort(key=lambda node: node.key)
            for node, following in pairwise([*nodes, nodes[0]]):
                self.graph(node).point(node, True, 0, following.ref)
                self.graph(following).point(following, False, 0, node.ref)

    def graph(self, node: Node) -> SkipGraph:
        return self.wire.graphs[node.ref.broker.name]

    def mislead(self) -> None:
        """Links above level 0 that lead anywhere, in whatever ring."""
        everywhere = [node.ref for nodes in self.of_side.values() for node in nodes]
        for nodes in self.of_side.values():
            for node in nodes:
                for level in range(1, 4):
                    node.right.append(None)
                    self.graph(node).point(node, True, level, self.rng.choice(everywhere))

    def met(self) -> bool:
        """Does a node of one ring point at one of another?"""
        return any({node.right[0] for node in nodes} - {node.ref for node in nodes} for nodes in self.of_side.values())

    def judge(self) -> None:
        """AssertionError unless there is one ring."""
        nodes = sorted((node for side in self.of_side.values() for node in side), key=lambda node: node.key)
        for node, following in pairwise([*nodes, nodes[0]]):
            right, left = node.right[0], following.left[0]
            assert right == following.ref, f"{name(node.key)} -> {right and name(right.key)}, not {name(following.key)}"
            assert left == node.ref, f"{name(following.key)} <- {left and name(left.key)}, not {name(node.key)}"


def name(key: Key) -> str:
    return f"{key.topic_filter}@{key.broker}"


@marks.expect("farther neighbour of another ring handed on")
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sides=st.lists(st.integers(0, 1), min_size=2, max_size=16).filter(lambda sides: len(set(sides)) == 2),
    topics=st.integers(1, 6),
    misled=st.booleans(),
)
def test_two_rings_that_meet_become_one(seed: int, sides: list[int], topics: int, misled: bool) -> None:
    rings = Rings(random.Random(seed), sides, topics)
    starter = rings.rng.choice(rings.of_side[0])
    rings.graph(starter).rejoin(rings.rng.choice(rings.of_side[1]).ref.broker)
    if misled:
        rings.wire.run(10_000, until=rings.met)
        rings.mislead()
    rings.wire.run(limit=100_000)
    rings.judge()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), brokers=st.integers(2, 12))
def test_two_nodes_that_point_at_one_do_not_stay_so(seed: int, brokers: int) -> None:
    """A node was put into a ring beside another: the one behind it hears from both that they point there."""
    rings = Rings(random.Random(seed), [0] * brokers, 3)
    nodes = rings.of_side[0]
    if len(nodes) < 3:
        return
    at = rings.rng.randrange(len(nodes))
    before, between, behind = (nodes[(at + i) % len(nodes)] for i in range(3))
    rings.graph(before).point(before, True, 0, behind.ref)
    for node in (before, between):
        rings.graph(node)._port.send(behind.ref.broker, SetLeft(behind.key, node.ref, None))
    rings.wire.run(limit=10_000)
    rings.judge()
