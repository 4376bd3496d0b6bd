"""Keys of trees follow their brokers: whoever leaves, joins, restarts, is out of reach; whoever hands them out."""

from __future__ import annotations

from math import log2

import pytest

from saps.agents.switchover import Mode
from saps.overlay.frames.delivery import Told
from tests.agents.switchovers import Scene
from tests.agents.test_switchover import publish, steady, without_alm

pytestmark = pytest.mark.simulation

MODES = pytest.mark.parametrize("mode", [Mode.EITHER, Mode.BOTH])


def tapped(scene: Scene) -> list[bytes]:
    """All datagrams that brokers send from now on."""
    seen: list[bytes] = []
    transmit = scene.ofm._transmit

    def tap(source: object, address: str, raw: bytes) -> None:
        seen.append(raw)
        transmit(source, address, raw)  # type: ignore[arg-type]

    scene.ofm._transmit = tap  # type: ignore[method-assign]
    return seen


def by_tree_alone(scene: Scene) -> None:
    """Publications go as one datagram each, and nothing by ALM; after a while, and until then nothing is lost."""
    publish(scene, 100, 1)
    assert without_alm(scene, 20, 1) == 20
    assert scene.ofm.unreadable == 0


def holders(scene: Scene) -> set[str]:
    """Who has the newest key that the publisher seals with."""
    raw = scene.ofm.keyrings["b0"].seal("a/b", b"", scene.simulation.now)
    assert raw is not None
    return {name for name, ring in scene.ofm.keyrings.items() if ring.peek(raw) is not None}


@MODES
def test_who_has_left_cannot_read_on_and_who_joins_cannot_read_what_was_before(mode: Mode) -> None:
    scene = steady(mode)
    seen = tapped(scene)
    hoard = list(scene.ofm.keyrings["b7"]._labels.values())
    publish(scene, 5)
    assert all(any(key.peek(raw) is not None for key in hoard) for raw in seen)
    scene.recorder.unsubscribe(scene.brokers[7], "a/b")
    publish(scene, 100)
    seen.clear()
    publish(scene, 20)
    assert len(seen) == 20
    assert not any(key.peek(raw) is not None for key in hoard for raw in seen)
    assert "b7" not in holders(scene)
    before = list(seen)
    scene.recorder.subscribe(scene.brokers[1], "a/b")
    publish(scene, 100)
    scene.ofm.agents["b0"].construct("a/b")  # BOTH: OFGate learns of newcomers by this
    publish(scene, 200)
    assert "b1" in holders(scene)
    assert not any(scene.ofm.keyrings["b1"].peek(raw) is not None for raw in before)
    by_tree_alone(scene)


@MODES
def test_a_change_costs_ofgate_few_messages_and_each_member_one(mode: Mode) -> None:
    scene = steady(mode, brokers=20)
    relays = {broker.name: broker.node.delivery.broadcaster for broker in scene.brokers}
    # A key that is renewed goes to all, wrapped; nothing is sent twice.
    before = {name: broadcaster.sent for name, broadcaster in relays.items()}
    scene.brokers[0].act(lambda: scene.gate.renew("a/b"))
    publish(scene, 20)
    sent = {name: broadcaster.sent - before[name] for name, broadcaster in relays.items()}
    members = holders(scene)
    assert sum(sent.values()) == len(members - {"b0"})
    assert sent["b0"] <= 3 * log2(len(members))
    by_tree_alone(scene)


@MODES
def test_a_member_that_restarts_is_served_by_alm_until_it_has_a_key_and_by_the_tree_then(mode: Mode) -> None:
    scene = steady(mode)
    scene.simulation.crash("b5")
    publish(scene, 200, 1)
    reborn = scene.simulation.add("b5", scene.brokers[5].ref.cluster, "b0")
    scene.simulation.run_until(lambda: reborn.joined)
    assert "b5" not in holders(scene)
    scene.brokers[5] = reborn
    scene.recorder.subscribe(reborn, "a/b")
    scene.simulation.run(1)
    publish(scene, 50, 1)
    scene.simulation.run(12)
    publish(scene, 50, 1)
    assert "b5" in holders(scene)
    without_alm(scene, 50, faulty=True)


@MODES
def test_a_member_out_of_reach_holds_nobody_up_and_gets_its_key_later(mode: Mode) -> None:
    scene = steady(mode)
    exchange = scene.brokers[6].node.delivery.broadcaster
    take, exchange.take = exchange.take, lambda body: False
    old = holders(scene)
    scene.brokers[0].act(lambda: scene.gate.renew("a/b"))
    publish(scene, 300, 1)
    assert holders(scene) == old - {"b6"}
    exchange.take = take
    scene.simulation.run(5)
    publish(scene, 50, 1)
    assert holders(scene) == old
    without_alm(scene, 50, faulty=True)


@MODES
def test_ofgate_dies_and_the_keys_go_on_until_the_next_one_makes_new_ones(mode: Mode) -> None:
    scene = steady(mode)
    scene.recorder.subscribe(scene.brokers[0], "z")
    label = scene.ofm.keyrings["b0"].seal("a/b", b"", scene.simulation.now) or b""
    groups = set(scene.ofm.keyrings["b0"]._topics["a/b"].chains)
    scene.gate.stop()
    publish(scene, 30)
    assert (scene.ofm.keyrings["b0"].seal("a/b", b"", scene.simulation.now) or b"")[1:9] == label[1:9]
    publish(scene, 50, 1)
    scene.simulation.run(12)
    assert set(scene.ofm.keyrings["b0"]._topics["a/b"].chains) > groups
    by_tree_alone(scene)


@MODES
def test_a_deleted_tree_leaves_no_keys_behind(mode: Mode) -> None:
    scene = steady(mode)
    scene.ofm.agents["b0"].release("a/b")
    scene.simulation.run(10)
    assert not scene.ofm.trees
    assert not any(ring._topics or ring._labels for ring in scene.ofm.keyrings.values())


def test_a_broker_takes_nothing_from_a_stranger_that_answers_for_others() -> None:
    """Replies that nobody asked for change nothing."""
    scene = steady(Mode.EITHER)
    for token in range(50):
        scene.brokers[0].node.receive(scene.brokers[6].ref, [Told(token, [])])
    by_tree_alone(scene)
