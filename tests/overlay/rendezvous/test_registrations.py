"""What many filters at once cost a mesh, by counts: frames, calls, nodes walked, steps in one turn of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from saps.overlay.frames.calls import Announce, Body, Gone
from saps.overlay.rendezvous import publisher_registry
from saps.overlay.rendezvous import range_calls as calls
from saps.overlay.rendezvous.range_calls import Call
from saps.overlay.rendezvous.streams import Phase
from saps.overlay.retained.store import PARTITIONS
from saps.overlay.ring import skip_graph
from saps.overlay.ring.keys import BrokerRef, Key, Range, topic_path
from saps.overlay.ring.routing import Node
from saps.overlay.slices import SLICE, Slices
from saps.simulator import Network, SimBroker, Simulation
from tests.overlay.ports import LonePort

pytestmark = pytest.mark.simulation

FAST = Network(latency=(0.0001, 0.0002))


def mesh_of(count: int, *, check: bool = False) -> tuple[Simulation, list[SimBroker]]:
    """Brokers that each publish to a few topics."""
    mesh = Simulation(1, network=FAST, check=check)
    brokers = mesh.build(count, 2)
    for number, broker in enumerate(brokers):
        for other in range(20):
            broker.publish(f"city/{other}/t{number}", b"x")
    mesh.run(1)
    return mesh, brokers


def registered(mesh: Simulation, broker: SimBroker, filters: Sequence[str], limit: float = 60) -> None:
    """Subscribe to all of them at once; returns when they are ready."""
    done: list[str] = []

    def act() -> None:
        for topic_filter in filters:
            broker.node.mesh.subscribe(topic_filter, partial(done.append, topic_filter))

    broker.act(act)
    mesh.run_until(lambda: len(done) == len(filters), limit)


def frames(mesh: Simulation, act: Callable[[], None]) -> int:
    before = mesh.counters.frames
    act()
    return mesh.counters.frames - before


def mixed(count: int) -> list[str]:
    """With a wildcard first, in the middle, and without."""
    return [(f"+/x{i}", f"city/{i % 20}/+/y{i}", f"city/{i % 20}/p{i}")[i % 3] for i in range(count)]


def test_one_call_announces_many_filters() -> None:
    """Filters that begin with a wildcard concern every broker: a call for each cost 30 frames a filter."""
    mesh, brokers = mesh_of(5)
    few = frames(mesh, lambda: registered(mesh, brokers[2], [f"+/a{i}" for i in range(500)]))
    many = frames(mesh, lambda: registered(mesh, brokers[2], [f"+/b{i}" for i in range(2000)]))
    assert few < 500
    assert many < 5 * max(few, 100)
    assert many < 1000


def test_mixed_filters_cost_a_few_frames_each() -> None:
    """Their keys are neighbours at one broker: only the ends of the row look for neighbours in the levels above."""
    mesh, brokers = mesh_of(5)
    assert frames(mesh, lambda: registered(mesh, brokers[2], mixed(3000))) < 3 * 3000
    between = frames(mesh, lambda: registered(mesh, brokers[3], mixed(3000)))
    assert between < 20 * 3000  # each key lies between two of the other broker's


def test_what_is_announced_together_is_published_and_delivered() -> None:
    mesh, brokers = mesh_of(5)
    registered(mesh, brokers[2], mixed(600))
    wanted = [("q/x3", 1), ("city/4/any/y4", 1), ("city/5/p5", 1), ("q/x4", 0), ("city/5/p6", 0)]
    for topic, copies in wanted:
        brokers[4].publish(topic, b"new")
        mesh.run(1)
        assert [message.topic for _, message in brokers[2].delivered].count(topic) == copies, topic


def test_withdrawn_together() -> None:
    mesh, brokers = mesh_of(3)
    filters = mixed(600)
    registered(mesh, brokers[1], filters)
    for topic_filter in filters:
        brokers[1].unsubscribe(topic_filter)
    mesh.run(5)
    assert not brokers[1].node.rendezvous.subscriptions.registrations
    assert len(brokers[1].node.graph.nodes) < 50
    brokers[2].publish("q/x3", b"late")
    mesh.run(1)
    assert not brokers[1].delivered


def test_some_are_withdrawn_while_they_are_announced() -> None:
    mesh, brokers = mesh_of(3, check=True)
    filters = [f"+/x{i}" for i in range(40)]
    done: list[str] = []

    def act() -> None:
        for topic_filter in filters:
            brokers[1].node.mesh.subscribe(topic_filter, partial(done.append, topic_filter))

    brokers[1].act(act)
    mesh.run_until(lambda: any(r.announcement for r in brokers[1].node.rendezvous.subscriptions.registrations.values()))
    for topic_filter in filters[::2]:
        brokers[1].unsubscribe(topic_filter)
    mesh.run(5)
    assert set(brokers[1].node.rendezvous.subscriptions.registrations) == set(filters[1::2])
    assert sorted(done) == sorted(filters)  # whoever withdraws is not left waiting


def test_own_nodes_are_not_walked_one_by_one_while_a_crash_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right link in doubt anywhere had each call walk all own keys of its range."""
    mesh, brokers = mesh_of(5)
    registered(mesh, brokers[2], [f"deep/{i}/+" for i in range(1000)])
    graph = brokers[2].node.graph
    first, last = (graph.nodes[key] for key in (graph.order[0], graph.order[len(graph.order) - 1]))
    for node in (first, last):
        graph.doubts.until(node, 10)
    steps = 0

    def counted(node: Node, low: Key, end: Key, port: object) -> list[object]:
        nonlocal steps
        steps += 1
        return calls_cut(node, low, end, port)  # type: ignore[arg-type, return-value]

    calls_cut = calls.cut
    monkeypatch.setattr(calls, "cut", counted)
    path = topic_path("deep")
    brokers[2].act(
        lambda: brokers[2].node.rendezvous.calls.call(
            Range(Key(path), Key(path + b"\1")), Announce([], brokers[2].ref, True), lambda outcome: None, 1
        )
    )
    mesh.run(0.1)
    assert 0 < steps < 20


def test_nodes_that_are_gone_at_once_cost_one_search_for_links_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each frame that had gone to such a node, and so a peer of whatever mind, had all links to its broker searched."""
    mesh = Simulation(1, network=FAST)
    one, other = mesh.build(2, 1)
    for number in range(60):
        for broker in (one, other):
            broker.publish(f"t{number}", b"x")
    mesh.run(2)
    graph, dropped = one.node.graph, list[int]()

    def linked() -> set[Key]:
        refs = [ref for node in graph.nodes.values() for ref in node.right[1:]]
        return {ref.key for ref in refs if ref is not None and ref.broker == other.ref}

    def counted(keys: object, broker: BrokerRef, gone: set[Key]) -> None:
        drop(keys, broker, gone)  # type: ignore[arg-type]
        assert not linked() & gone
        dropped.append(len(gone))

    drop = graph._drop_links
    monkeypatch.setattr(graph, "_drop_links", counted)
    said = sorted(linked())
    assert len(said) > 10
    for key in said:
        one.act(lambda key=key: one.node.receive(other.ref, [Gone(key)]))  # type: ignore[misc]
        mesh.run(0.001)
    mesh.run(skip_graph.DROP_EVERY)
    assert sum(dropped) == len(said)
    assert len(dropped) < len(said) / 4


def test_a_row_with_a_link_in_doubt_makes_a_call_incomplete() -> None:
    mesh, brokers = mesh_of(2)
    registered(mesh, brokers[1], [f"deep/{i:03}/+" for i in range(50)])
    graph = brokers[1].node.graph
    inside = next(key for key in graph.order if key.is_topic and key.topic_filter == "deep/025/+")
    for doubted in (False, True):
        if doubted:
            graph.doubts.until(graph.nodes[inside], 10)
        found: list[bool] = []
        path = topic_path("deep")
        brokers[1].act(
            lambda told=found, path=path: brokers[1].node.rendezvous.calls.call(  # type: ignore[misc]
                Range(Key(path), Key(path + b"\1")),
                Announce([], brokers[1].ref, True),
                lambda outcome: told.append(outcome.complete),
                1,
            )
        )
        mesh.run(0.2)
        assert found == [not doubted]


def test_no_turn_of_a_broker_takes_more_than_a_slice() -> None:
    """Frames, heartbeats and other clients are served in between."""
    mesh, brokers = mesh_of(5)
    node = brokers[2].node
    turns: Counter[float] = Counter()
    begin = node.rendezvous.subscriptions._begin

    def counted(registration: object) -> None:
        turns[mesh.now] += 1
        begin(registration)  # type: ignore[arg-type]

    node.rendezvous.subscriptions._begin = counted  # type: ignore[method-assign]
    registered(mesh, brokers[2], mixed(3000))
    assert turns.total() == 3000
    assert max(turns.values()) <= SLICE


def test_a_publisher_to_many_topics_collects_again_and_closes_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of them in one turn, a broker that had been taken for dead once stood still until it was so again."""
    mesh, brokers = mesh_of(3)
    one, *_, last = brokers
    registered(mesh, last, ["plant/+/8", "plant/9/x"])
    for number in range(500):
        one.publish(f"plant/{number}/8", b"x")
        mesh.run(0.01)
    turns: dict[str, Counter[float]] = {"call": Counter(), "remove": Counter()}

    def count(machine: object, name: str) -> None:
        counted = getattr(machine, name)

        def counting(what: object, *more: object) -> object:
            turns[name][mesh.now] += 1
            return counted(what, *more)

        monkeypatch.setattr(machine, name, counting)

    count(one.node.rendezvous.calls, "call")
    count(one.node.graph, "remove")
    for key in list(one.node.graph.order):
        one.act(lambda key=key: one.node._key_again(key))  # type: ignore[misc]
    mesh.run(0.5)
    sources, again = len(one.node.rendezvous.publishers.sources()), turns["call"].total()
    assert sources > 1500
    assert sources - 100 < again < sources + 100, "each prefix once"
    one.act(one.node._say_again)
    mesh.run(0.5)
    assert turns["call"].total() - again > sources - 100
    mesh.run(publisher_registry.IDLE + 10)
    assert turns["remove"].total() > 500
    assert not any(stream.phase is Phase.OPEN for stream in one.node.rendezvous.publishers.streams.values())
    assert max(max(by_time.values()) for by_time in turns.values()) <= SLICE + PARTITIONS


def test_a_broker_that_was_taken_for_dead_says_little_again() -> None:
    """It announces what it has in few calls, and all deliver to it afterwards."""
    mesh, brokers = mesh_of(5)
    filters = [topic_filter for topic_filter in mixed(3000) if "+" in topic_filter]
    registered(mesh, brokers[2], filters)
    mesh.run(2)
    mesh.partition(["b2"])
    mesh.run(6)
    mesh.heal()
    announcing = brokers[2].node.rendezvous.calls
    called, call = 0, announcing.call

    def counted(wanted: Range, body: Body, *more: Any, **options: Any) -> Call:
        nonlocal called
        called += isinstance(body, Announce)
        return call(wanted, body, *more, **options)

    announcing.call = counted  # type: ignore[method-assign]
    before = mesh.counters.frames
    mesh.run(15)
    assert mesh.counters.frames - before < 20 * len(filters)
    assert 0 < called < len(filters) / 5  # several times over
    for broker in brokers:
        assert not broker.node.port.detector.dead
    mesh.check_ring()
    brokers[0].publish("q/x3", b"after")
    mesh.run(2)
    assert [message.payload for _, message in brokers[2].delivered].count(b"after") == 1


@pytest.mark.parametrize("much", [1, SLICE, 10 * SLICE])
def test_slices_go_on_until_nothing_is_left(much: int) -> None:
    port, left, turns = LonePort(), much, list[tuple[float, int]]()

    def work(most: int) -> int:
        nonlocal left
        done = min(most, left)
        left -= done
        turns.append((port.now, done))
        return done

    slices = Slices(port, work)  # type: ignore[arg-type]
    slices.wake()
    port.run(1)
    assert left == 0
    by_time: Counter[float] = Counter()
    for now, done in turns:
        by_time[now] += done
    assert max(by_time.values()) <= SLICE
    assert [later - earlier for earlier, later in pairwise(sorted(by_time))] == [pytest.approx(0.001)] * (
        len(by_time) - 1
    )
