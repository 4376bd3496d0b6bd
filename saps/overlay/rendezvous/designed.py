"""The designed overlay as one broker knows it: a tree for each topic, along whose links the topic's messages travel.

One broker designs the trees (`saps.overlay.rendezvous.designer`) from the subscriptions of all, with few links for
each broker, and publishes them in numbered parts. Every broker divides the members of a topic along its tree: each
neighbour gets one message and the members behind it; a publisher outside the tree enters at its root.

Nothing depends on this. A message names its receivers, so however each broker divides them, each gets it once and
nobody else does: also while two brokers know different designs. Members that the tree does not have, or that stand
behind one which is no member any more, go as in a mesh without design (`saps.overlay.delivery.tree`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.frames.calls import DesignPart, Surveyed, TopicTree
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

PART = 32_768
"""Approximate limit of one part of a design in bytes; a single larger tree is a part of its own."""
DIVIDED = 65_536
"""Most slices whose division is cached."""
AHEAD = 1 << 20
"""Most epochs by which a design may be ahead of the last known one. Epochs grow one by one, so a larger step is hostile
and could exhaust them."""


class Position(NamedTuple):
    """The last part of a design that a broker has. Positions compare by epoch, designer, serial."""

    epoch: int
    """Grows with each broker that becomes the designer; 0: no design yet."""
    designer: str
    serial: int
    """Number of the last part; negative while a whole design is incomplete."""


class Shape(NamedTuple):
    """The tree of one topic, by names of brokers."""

    root: str
    parent: Mapping[str, str]
    """The parent of every broker except the root."""

    def __contains__(self, name: object) -> bool:
        return name == self.root or name in self.parent

    def toward(self, here: str, name: str) -> str:
        """Return the neighbour of `here` on the way to `name`, another broker of the tree; the root if `here` is not in
        the tree."""
        at = name
        while at != self.root:
            above = self.parent[at]
            if above == here:
                return at
            at = above
        return self.parent.get(here, self.root)


class _Divided(NamedTuple):
    """The cached division of a sender's numbered slice for a topic."""

    plain: list[Branch]
    """The division without design: a new list if the sender has used the number again."""
    branches: list[Branch]


class Designs:
    """The design as one broker knows it, by which it divides the members of topics."""

    def __init__(self, port: Port, changed: Callable[[set[str]], None]) -> None:
        """`changed` is called with the topics that must be divided again."""
        self._port = port
        self._changed = changed
        self.position = Position(0, "", 0)
        self.trees: dict[str, Shape] = {}
        """The tree of each topic; topics with the same tree share one object."""
        self._shapes: dict[tuple[str, frozenset[tuple[str, str]]], Shape] = {}
        self._divided: dict[tuple[str, int, str], _Divided] = {}

    def accept(self, part: DesignPart) -> None:
        """Take a part of a design, unless it belongs to an older one or does not follow the last part (runs
        `DesignPart`)."""
        theirs, mine = (part.epoch, part.designer), self.position[:2]
        if part.epoch > self.position.epoch + AHEAD:
            return
        if theirs < mine or (part.base and (theirs != mine or part.base != self.position.serial)):
            return
        topics: set[str] = set()
        if not part.base:
            topics.update(self.trees)
            self.trees.clear()
            self._shapes.clear()
        for tree in part.trees:
            topics.add(tree.topic)
            shape = unpack(tree, part.names)
            if shape is not None:
                name = shape.root, frozenset(shape.parent.items())
                self.trees[tree.topic] = self._shapes.setdefault(name, shape)
            else:
                self.trees.pop(tree.topic, None)
        if len(self._shapes) > 2 * len(self.trees) + PART:
            self._shapes = {(shape.root, frozenset(shape.parent.items())): shape for shape in self.trees.values()}
        self.position = Position(part.epoch, part.designer, part.serial)
        self._divided.clear()
        self._changed(topics)

    def surveyed(self, filters: Iterable[str], topics: Iterable[str]) -> Surveyed:
        """Return the answer to `Survey`, for a broker with these filters that publishes to these topics."""
        epoch, designer, serial = self.position
        return Surveyed(self._port.me, list(filters), list(topics), designer, epoch, serial)

    def divide(self, topic: str, members: Sequence[BrokerRef]) -> list[Branch]:
        """Divide `members`, sorted by place and without this broker, into branches. Every member is the child of
        exactly one branch or in its slice."""
        here, shape = self._port.me, self.trees.get(topic)
        if shape is None:
            return divide(here, members, self._port.order)
        refs = {member.name: member for member in members}
        behind: dict[str, list[BrokerRef]] = {}
        strays: list[BrokerRef] = []
        for member in members:
            way = shape.toward(here.name, member.name) if member.name in shape else ""
            if way in refs:
                behind.setdefault(way, []).append(member)
            else:
                strays.append(member)
        return [
            *(Branch(refs[way], tuple(ref for ref in run if ref.name != way)) for way, run in behind.items()),
            *divide(here, strays, self._port.order),
        ]

    def onward(self, sender: str, number: int, topics: Sequence[str], plain: list[Branch]) -> list[Branch]:
        """Divide the numbered slice of `sender` for publications to these topics. If this broker knows different trees
        for them, the result is `plain`, the division without design."""
        topic, shape = topics[0], self.trees.get(topics[0])
        if any([self.trees.get(other) is not shape for other in topics]):
            return plain
        name = sender, number, topic
        known = self._divided.get(name)
        if known is None or known.plain is not plain:
            if len(self._divided) >= DIVIDED:
                self._divided.clear()
            members = [ref for child, run in plain for ref in (child, *run)]
            known = self._divided[name] = _Divided(plain, self.divide(topic, members))
        return known.branches


def pack(topic: str, shape: Shape | None, numbers: dict[str, int]) -> TopicTree:
    """Encode a tree with `numbers` in place of its brokers' names; new brokers get the next number. None stands for no
    tree."""
    if shape is None:
        return TopicTree(topic, [], [])
    below: dict[str, list[str]] = {}
    for child, parent in shape.parent.items():
        below.setdefault(parent, []).append(child)
    place, nodes, parents = {shape.root: 0}, [shape.root], list[int]()
    for node in nodes:  # grows meanwhile: level by level
        for child in below.get(node, ()):
            place[child] = len(nodes)
            nodes.append(child)
            parents.append(place[node])
    return TopicTree(topic, [numbers.setdefault(name, len(numbers)) for name in nodes], parents)


def unpack(tree: TopicTree, names: Sequence[str]) -> Shape | None:
    """Decode the tree of a part. Returns None if the topic has no tree, or if it is no tree of distinct brokers."""
    nodes, parents = tree.nodes, tree.parents
    if not nodes or len(parents) != len(nodes) - 1 or not all(0 <= number < len(names) for number in nodes):
        return None
    if len({names[number] for number in nodes}) < len(nodes):
        return None
    if not all(0 <= parent <= i for i, parent in enumerate(parents)):
        return None
    called = [names[number] for number in nodes]
    return Shape(called[0], {name: called[parent] for name, parent in zip(called[1:], parents, strict=True)})


def parts(
    start: Position, base: int, last: int, trees: Mapping[str, Shape | None], size: int = PART
) -> Iterator[DesignPart]:
    """Split trees into a chain of at least one part of about `size` bytes, each naming the part before it.

    The first part follows `base`, 0 for a whole design. The parts of a whole design have negative numbers, except for
    the last one, `last`. Otherwise the numbers continue from `base`, and `last` is not used."""
    chunks = list(_chunks(trees, size))
    for i, (names, chunk) in enumerate(chunks):
        serial = base + i + 1 if base else last if i == len(chunks) - 1 else -i - 1
        yield DesignPart(start.designer, start.epoch, base + i if base else -i, serial, names, chunk)


def _chunks(trees: Mapping[str, Shape | None], size: int) -> Iterator[tuple[list[str], list[TopicTree]]]:
    numbers: dict[str, int] = {}
    chunk: list[TopicTree] = []
    left = size
    for topic, shape in trees.items():
        cost = 16 + len(topic)
        if shape is not None:
            cost += 4 * len(shape.parent)
            cost += sum(len(name) for name in (shape.root, *shape.parent) if name not in numbers)
        if chunk and cost > left:
            yield list(numbers), chunk
            numbers, chunk, left = {}, [], size
        chunk.append(pack(topic, shape, numbers))
        left -= cost
    yield list(numbers), chunk
