"""The designed overlay as a broker knows it: dividing by it, and following designs that come in parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from saps.overlay.delivery.tree import Branch
from saps.overlay.design.live import LiveOverlay
from saps.overlay.frames.calls import DesignPart, Surveyed, TopicTree
from saps.overlay.port import Port
from saps.overlay.rendezvous.designed import Designs, Position, Shape, pack, parts, unpack
from saps.overlay.rendezvous.designer import mend, resolve
from saps.overlay.ring.keys import BrokerRef, KeyOrder
from saps.topics import matches

NAMES = [f"b{number}" for number in range(12)]
REFS = {name: BrokerRef(name, 1, "", f"c{number % 3}") for number, name in enumerate(NAMES)}


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Any tree over some of the brokers, however deep."""
    nodes = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    return Shape(nodes[0], {name: nodes[draw(st.integers(0, i))] for i, name in enumerate(nodes[1:])})


def designs(name: str, shape: Shape | None) -> Designs:
    """What a broker knows that has this tree for the topic ``t``."""
    port = SimpleNamespace(me=REFS[name], order=KeyOrder.CLUSTER)
    known = Designs(cast(Port, port), lambda topics: None)
    if shape is not None:
        known.trees["t"] = shape
    return known


@given(st.lists(st.one_of(st.none(), shapes()), min_size=12, max_size=12), st.sets(st.sampled_from(NAMES), min_size=1))
def test_whatever_designs_the_brokers_know_each_member_gets_one_message_and_nobody_else(
    known: list[Shape | None], members: set[str]
) -> None:
    at = dict(zip(NAMES, known, strict=True))
    publisher = min(members)
    receivers = sorted(members - {publisher}, key=lambda name: (REFS[name].cluster, name))
    reached: list[str] = []
    pending = [(publisher, tuple(REFS[name] for name in receivers))]
    while pending:
        here, run = pending.pop()
        for child, rest in designs(here, at[here]).divide("t", run):
            reached.append(child.name)
            pending.append((child.name, rest))
    assert sorted(reached) == sorted(receivers)


@given(shapes(), st.sampled_from(NAMES))
def test_when_all_know_the_design_messages_go_along_its_links_only(shape: Shape, publisher: str) -> None:
    members = {shape.root, *shape.parent} - {publisher}
    edges = {frozenset(edge) for edge in shape.parent.items()}
    if publisher not in shape:
        edges.add(frozenset((publisher, shape.root)))
    pending = [(publisher, tuple(REFS[name] for name in NAMES if name in members))]
    while pending:
        here, run = pending.pop()
        for child, rest in designs(here, shape).divide("t", run):
            assert frozenset((here, child.name)) in edges
            pending.append((child.name, rest))


@given(shapes())
def test_a_tree_survives_the_wire(shape: Shape) -> None:
    numbers: dict[str, int] = {}
    assert unpack(pack("t", shape, numbers), list(numbers)) == shape


@given(st.lists(st.integers(-1, 4)), st.lists(st.integers(-1, 4)))
def test_what_is_no_tree_is_taken_for_none(nodes: list[int], parents: list[int]) -> None:
    shape = unpack(TopicTree("t", nodes, parents), NAMES[:3])
    if shape is not None:
        assert {shape.root, *shape.parent} == {NAMES[number] for number in nodes}
        assert all(shape.toward(shape.root, name) in shape for name in shape.parent)


@given(
    st.dictionaries(st.sampled_from("tuvwxyz"), shapes()),
    st.dictionaries(st.sampled_from("tuvwxyz"), st.one_of(st.none(), shapes()), min_size=1),
    st.integers(1, 200),
    st.integers(0, 20),
)
def test_a_design_follows_part_by_part_or_not_at_all(
    first: dict[str, Shape], changes: dict[str, Shape | None], size: int, lost: int
) -> None:
    at = Position(1, "d", 0)
    whole = list(parts(at, 0, 1, first, size))
    later = list(parts(at, 1, 0, changes, size))
    after = {topic: shape for topic, shape in {**first, **changes}.items() if shape is not None}
    follower, behind = designs("b0", None), designs("b1", None)
    for part in (*whole, *later):
        follower.accept(part)
        follower.accept(part)  # a range call may run twice
    assert follower.trees == after
    assert follower.position == Position(1, "d", later[-1].serial)
    for part in (*whole, *(part for i, part in enumerate(later) if i != lost)):
        behind.accept(part)
    assert (behind.position == follower.position) is (lost >= len(later))
    for part in parts(at, 0, follower.position.serial, after, size):
        behind.accept(part)
    assert (behind.trees, behind.position) == (follower.trees, follower.position)


def test_an_older_designer_is_not_followed() -> None:
    follower = designs("b0", None)
    tree = TopicTree("t", [0, 1], [0])
    follower.accept(DesignPart("d", 2, 0, 1, ["b0", "b1"], [tree]))
    follower.accept(DesignPart("z", 1, 0, 7, ["b0", "b2"], [tree]))
    follower.accept(DesignPart("c", 2, 0, 7, ["b0", "b2"], [tree]))
    assert follower.position == Position(2, "d", 1)
    follower.accept(DesignPart("e", 2, 0, 1, ["b0", "b2"], [tree]))
    assert follower.position == Position(2, "e", 1)
    assert follower.trees == {"t": Shape("b0", {"b2": "b0"})}


def test_a_slice_number_that_is_given_again_is_divided_again() -> None:
    known = designs("b0", Shape("b0", {"b1": "b0", "b2": "b1", "b3": "b0"}))
    first = [Branch(REFS["b1"], (REFS["b2"],))]
    assert known.onward("p", 1, "t", first) == [Branch(REFS["b1"], (REFS["b2"],))]
    again = [Branch(REFS["b3"], ())]
    assert known.onward("p", 1, "t", again) == again


FILTERS = st.sampled_from(["a", "a/b", "a/#", "+/b", "#", "$S/a", "$S/#", "x"])


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(st.sets(FILTERS), st.sets(st.sampled_from(["a/b", "$S/x"])))))
def test_wildcards_are_resolved_as_mqtt_says(said: dict[str, tuple[set[str], set[str]]]) -> None:
    answers = [
        Surveyed(REFS[name], sorted(filters), sorted(topics), "", 0, 0) for name, (filters, topics) in said.items()
    ]
    named = {topic for _, topics in said.values() for topic in topics}
    named |= {one for filters, _ in said.values() for one in filters if "#" not in one and "+" not in one}
    expected = {
        topic: sorted(name for name, (filters, _) in said.items() if any(matches(one, topic) for one in filters))
        for topic in named
    }
    assert resolve(answers) == {topic: names for topic, names in expected.items() if names}


INTERESTS = st.dictionaries(
    st.sampled_from("tuvwx"), st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(sorted)
)


@given(st.sampled_from([1, 2]), st.lists(INTERESTS, max_size=4))
def test_mended_trees_have_exactly_the_brokers_that_want_the_topic(
    levels: int, rounds: list[dict[str, list[str]]]
) -> None:
    overlay: LiveOverlay[str, str] = LiveOverlay(levels)
    before: dict[str, list[str]] = {}
    for wanted in rounds:
        pairs, old = ({(t, name) for t, names in one.items() for name in names} for one in (wanted, before))
        assert mend(overlay, wanted) == len(pairs ^ old)
        assert {topic: sorted(tree.children) for topic, tree in overlay.trees.items()} == wanted
        assert all(tree.depth(name) <= levels for tree in overlay.trees.values() for name in tree.children)
        before = wanted
