"""No loops: any meshes and upstreams, joined by bridges and upstreams among themselves, seen as a graph."""

from __future__ import annotations

import random
from collections import Counter
from math import perm
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.upstream.bridge import MARK, Bridge, Refusal, path_of
from saps.frontend.upstream.echoes import Echoes
from saps.frontend.upstream.mapping import Mapping
from saps.messages import Message, Properties

EVERYTHING = [Mapping.parse("#")]


class Joint(NamedTuple):
    """A bridge between a mesh and an upstream; `plain`: with MQTT 3.1.1, without marks and without no-local."""

    mesh: int
    upstream: int
    plain: bool = False


class World:
    """Meshes and upstreams. Upstreams form a line of Mosquitto bridges as far as `wired` says; -1 stands for none.

    Copies in transit arrive in any order.
    """

    def __init__(self, joints: list[Joint], wired: set[int], strip: bool, window: float, rng: random.Random) -> None:
        """`wired`: j for a bridge between upstreams j and j + 1; `strip`: these bridges lose the marks."""
        self.joints = joints
        self.bridges = [Bridge(f"b{i}", EVERYTHING, window) for i in range(len(joints))]
        self.wired, self.strip, self.rng = wired, strip, rng
        self.crossings = 0
        self.seen: Counter[tuple[str, int]] = Counter()
        """Copies that the clients of each mesh and upstream got."""
        self._transit: list[tuple[int, bool, Message]] = []
        """(bridge, outwards, message) about to be decided on."""

    def publish_in_mesh(self, mesh: int, message: Message, importer: int = -1) -> None:
        self.seen["mesh", mesh] += 1
        self._transit += [
            (i, True, message) for i, joint in enumerate(self.joints) if joint.mesh == mesh and i != importer
        ]

    def publish_at_upstream(self, upstream: int, message: Message, exporter: int = -1, came_from: int = -1) -> None:
        self.seen["upstream", upstream] += 1
        for i, joint in enumerate(self.joints):
            if joint.upstream == upstream and (i != exporter or joint.plain):
                self._transit.append((i, False, unmarked(message) if joint.plain else message))
        for j, neighbour in ((upstream, upstream + 1), (upstream - 1, upstream - 1)):
            if j in self.wired and neighbour != came_from:
                passed = unmarked(message) if self.strip else message
                self.publish_at_upstream(neighbour, passed, came_from=upstream)

    def settle(self, limit: int) -> None:
        """Until nothing is in transit; at most `limit` crossings, or it is a loop."""
        while self._transit:
            i, outwards, message = self._transit.pop(self.rng.randrange(len(self._transit)))
            bridge, joint = self.bridges[i], self.joints[i]
            decided = bridge.outward(message, 0.0) if outwards else bridge.inward(message, 0.0)
            if isinstance(decided, Refusal):
                continue
            self.crossings += 1
            assert self.crossings <= limit, "a loop"
            if outwards:
                self.publish_at_upstream(joint.upstream, unmarked(decided) if joint.plain else decided, exporter=i)
            else:
                self.publish_in_mesh(joint.mesh, decided, importer=i)

    def reachable(self, start: tuple[str, int]) -> set[tuple[str, int]]:
        edges = [(("mesh", joint.mesh), ("upstream", joint.upstream)) for joint in self.joints]
        edges += [(("upstream", j), ("upstream", j + 1)) for j in self.wired]
        found = {start}
        for _ in edges:
            for one, other in edges:
                if one in found or other in found:
                    found |= {one, other}
        return found


def unmarked(message: Message) -> Message:
    return msgspec.structs.replace(message, properties=None)


joints = st.lists(st.builds(Joint, st.integers(0, 1), st.integers(0, 2), st.just(False)), min_size=1, max_size=4)
plain_joints = st.lists(st.builds(Joint, st.integers(0, 1), st.integers(0, 2), st.booleans()), min_size=1, max_size=4)
wires = st.sets(st.integers(0, 1))
seeds = st.integers(0, 1000)


def run(world: World, at_upstream: bool, limit: int) -> None:
    start = ("upstream", world.joints[0].upstream) if at_upstream else ("mesh", world.joints[0].mesh)
    message = Message("a/b", b"x", 1)
    if at_upstream:
        world.publish_at_upstream(start[1], message)
    else:
        world.publish_in_mesh(start[1], message)
    world.settle(limit)
    assert set(world.seen) == world.reachable(start)


@given(joints, wires, seeds, st.booleans())
def test_with_marks_every_loop_ends_and_everybody_gets_the_message(
    joints: list[Joint], wired: set[int], seed: int, at_upstream: bool
) -> None:
    n = len(joints)
    world = World(joints, wired, strip=False, window=0.0, rng=random.Random(seed))
    run(world, at_upstream, limit=sum(perm(n, k) for k in range(1, n + 1)))  # no two copies took the same path


@given(plain_joints, wires, seeds, st.booleans())
def test_without_marks_the_echo_window_does_the_same(
    joints: list[Joint], wired: set[int], seed: int, at_upstream: bool
) -> None:
    n = len(joints)
    world = World(joints, wired, strip=True, window=1.0, rng=random.Random(seed))
    # Each bridge sends out twice at most (once what its mesh published, once what another let in), each to all.
    run(world, at_upstream, limit=2 * n + 2 * n * n + n)


def test_the_model_finds_the_loop_that_marks_alone_cannot_end() -> None:
    joints = [Joint(0, 0), Joint(0, 1)]
    world = World(joints, {0}, strip=True, window=0.0, rng=random.Random(1))
    with pytest.raises(AssertionError, match="a loop"):
        run(world, at_upstream=False, limit=1000)


def test_one_bridge_to_each_upstream_delivers_once() -> None:
    world = World([Joint(0, 0), Joint(0, 1), Joint(1, 2)], set(), strip=False, window=0.0, rng=random.Random(1))
    run(world, at_upstream=True, limit=2)
    assert world.seen == {("upstream", 0): 1, ("mesh", 0): 1, ("upstream", 1): 1}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1)), min_size=1))
def test_what_clients_of_the_mesh_publish_is_never_taken_for_an_echo(published: list[tuple[str, float]]) -> None:
    bridge = Bridge("b", EVERYTHING, 10.0)
    for payload, now in published:
        assert isinstance(bridge.outward(Message("t", payload.encode(), 1), now), Message)


def test_an_echo_is_known_within_the_window_only() -> None:
    bridge = Bridge("b", EVERYTHING, 2.0)
    message = Message("t", b"on", 1)
    bridge.outward(message, 0.0)
    assert bridge.inward(message, 1.9) is Refusal.ECHO
    assert isinstance(bridge.inward(message, 2.0), Message)


def test_the_window_keeps_to_its_bound() -> None:
    echoes = Echoes(1000.0, capacity=10)
    for number in range(25):
        echoes.crossed("t", str(number).encode(), True, float(number))
    assert len(echoes) == 10
    assert echoes.went_out("t", b"24", 25.0)
    assert not echoes.passed("t", b"14", 25.0)


def test_a_message_keeps_its_properties_and_gets_its_path() -> None:
    bridge = Bridge("b2", [Mapping.parse("# in 1 site/ retain=drop")])
    sent = Properties(content_type="text", correlation_data=b"7", user=(("k", "v"), (MARK, "b1")))
    forwarded = bridge.inward(Message("t", b"x", 2, True, sent), 0.0)
    assert isinstance(forwarded, Message)
    assert path_of(forwarded) == ("b1", "b2")
    assert forwarded.properties == msgspec.structs.replace(sent, user=(("k", "v"), (MARK, "b1 b2")))
    assert (forwarded.topic, forwarded.qos, forwarded.retain) == ("site/t", 1, False)
    assert bridge.inward(forwarded, 0.0) is Refusal.LOOPED


def test_a_path_without_end_is_not_carried_on() -> None:
    endless = Properties(user=((MARK, "x " * 64),))
    assert Bridge("b", EVERYTHING).inward(Message("t", b"", 0, False, endless), 0.0) is Refusal.LOOPED
