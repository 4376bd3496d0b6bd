"""Grows trees for all topics together, in plain Python: the design algorithm of a running mesh.

1. Grow a tree for each topic in a `LiveOverlay` (a star, or two levels below the root), the largest topic first.
2. In each round, take out each tree in turn and grow it anew among all others.
3. Keep the best round.

The root of a star is the node that raises the sum of degree ** POWER least, as in `balanced_stars`. The root of a
two-level tree is the node that already has most links to the topic's other nodes.

The algorithm needs no numpy. At the sizes of a mesh it comes close to the designs that do (a test compares them). Among
equal choices the first one wins, so the same interests give the same overlay at every broker.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from saps.overlay.design.live import LiveOverlay, Tree

POWER = 16.0
"""Exponent of the degrees in the sum that is minimized. A large one minimizes the maximum; 1 the number of links."""
ROUNDS = 6
"""Most rounds in which each tree is grown anew; the time grows in proportion."""
WORK = 200_000
"""Most choices in all rounds together, each a few microseconds. A large mesh gets fewer rounds, or none."""
WORN = 1.25
"""Factor above which a changed design is worn: its greatest degree, or its links per subscription, against those when
it was grown. After 1,000 replacements without growing anew these were up to 1.75 and 1.54 times as high."""

Node = TypeVar("Node", bound=Hashable)
Topic = TypeVar("Topic", bound=Hashable)


class Load(NamedTuple):
    """The cost of a design, compared in this order."""

    maximum_degree: int
    links: int
    """Number of links, each counted at both ends."""


class Fresh(NamedTuple):
    """The cost of a design when all its trees had just been grown."""

    load: Load
    subscriptions: int

    def worn(self, overlay: LiveOverlay[Node, Topic]) -> bool:
        """Return whether the design has become so much worse that its trees should be grown anew."""
        now = fresh(overlay)
        if now.load.maximum_degree > max(WORN * self.load.maximum_degree, self.load.maximum_degree + 1):
            return True
        return now.load.links * self.subscriptions > WORN * self.load.links * now.subscriptions


def fresh(overlay: LiveOverlay[Node, Topic]) -> Fresh:
    """Return the cost of a design that was just grown, for later comparison."""
    return Fresh(load(overlay), sum(len(topics) for topics in overlay.topics.values()))


def grow(nodes_of: Mapping[Topic, Sequence[Node]], levels: int) -> LiveOverlay[Node, Topic]:
    """Return an overlay with a tree over each topic's nodes, at most `levels` (1 or 2) levels below the root. Raises
    ValueError for other levels."""
    growing = growth(nodes_of, levels)
    while True:
        try:
            next(growing)
        except StopIteration as end:
            grown: LiveOverlay[Node, Topic] = end.value
            return grown


def growth(nodes_of: Mapping[Topic, Sequence[Node]], levels: int) -> Generator[None, None, LiveOverlay[Node, Topic]]:
    """Run `grow` in small steps, one tree each, so that a broker can do other work in between. Yields after each tree
    and returns the overlay."""
    overlay: LiveOverlay[Node, Topic] = LiveOverlay(levels)
    for node in dict.fromkeys(node for nodes in nodes_of.values() for node in nodes):
        overlay.join(node, ())
    order = sorted((topic for topic, nodes in nodes_of.items() if nodes), key=lambda topic: -len(nodes_of[topic]))
    for topic in order:
        _plant(overlay, topic, nodes_of[topic])
        yield
    best, least = trees_of(overlay), load(overlay)
    for _ in range(_rounds(nodes_of)):
        before = {topic: tree.root for topic, tree in overlay.trees.items()}
        for topic in order:
            _clear(overlay, topic)
            _plant(overlay, topic, nodes_of[topic])
            yield
        if load(overlay) < least:
            best, least = trees_of(overlay), load(overlay)
        if levels == 1 and all(tree.root == before[topic] for topic, tree in overlay.trees.items()):
            break
    return overlay_of(best, levels)


def load(overlay: LiveOverlay[Node, Topic]) -> Load:
    """Return the greatest degree of a node, and the sum of all degrees."""
    degrees = [len(neighbours) for neighbours in overlay.uses.values()]
    return Load(max(degrees, default=0), sum(degrees))


def trees_of(overlay: LiveOverlay[Node, Topic]) -> dict[Topic, tuple[Node, dict[Node, Node]]]:
    """Return for each topic its root, and the parent of each other node."""
    return {topic: (tree.root, dict(tree.parent)) for topic, tree in overlay.trees.items()}


def overlay_of(trees: Mapping[Topic, tuple[Node, Mapping[Node, Node]]], levels: int) -> LiveOverlay[Node, Topic]:
    """Return a `LiveOverlay` made of these trees, as given by `trees_of`. Raises ValueError if a tree is deeper than
    `levels`."""
    overlay: LiveOverlay[Node, Topic] = LiveOverlay(levels)
    for topic, (root, parents) in trees.items():
        tree = overlay.trees[topic] = Tree(root)
        for node in (root, *parents):
            overlay.topics.setdefault(node, {})[topic] = None
            overlay.uses.setdefault(node, {})
            tree.children.setdefault(node, {})
        for node, parent in parents.items():
            tree.hang(node, parent)
            for one, other in ((node, parent), (parent, node)):
                overlay.uses[one][other] = overlay.uses[one].get(other, 0) + 1
        if any(tree.depth(node) > levels for node in parents):
            raise ValueError(f"the tree of {topic!r} is deeper than {levels}")
    return overlay


def _rounds(nodes_of: Mapping[Topic, Sequence[Node]]) -> int:
    choices = sum(len(nodes) ** 2 for nodes in nodes_of.values())
    return min(ROUNDS, int(WORK // max(choices, 1)))


def _plant(overlay: LiveOverlay[Node, Topic], topic: Topic, nodes: Sequence[Node]) -> None:
    """Grow the tree of a topic that has none: first the root, then the nodes linked to the root, then the others."""
    root = _star_root(overlay, nodes) if overlay.levels == 1 else _tree_root(overlay, nodes)
    linked = overlay.uses[root]
    overlay.subscribe(root, topic)
    for node in sorted((node for node in nodes if node != root), key=lambda node: node not in linked):
        overlay.subscribe(node, topic)


def _clear(overlay: LiveOverlay[Node, Topic], topic: Topic) -> None:
    """Take out a topic's tree, leaves first, so that no subtree has to be attached elsewhere meanwhile."""
    tree = overlay.trees[topic]
    for node in sorted(tree.children, key=tree.depth, reverse=True):
        overlay.unsubscribe(node, topic)


def _star_root(overlay: LiveOverlay[Node, Topic], nodes: Sequence[Node]) -> Node:
    """Return the node whose star raises the sum of degree ** POWER least; existing links are free."""
    degree = {node: len(overlay.uses[node]) for node in nodes}
    step = {node: _raised(degree[node] + 1) - _raised(degree[node]) for node in nodes}
    total = sum(step.values())

    def cost(centre: Node) -> float:
        linked = [node for node in overlay.uses[centre] if node in step]
        own = _raised(degree[centre] + len(nodes) - 1 - len(linked)) - _raised(degree[centre])
        return total - step[centre] + own - sum(step[node] for node in linked)

    return min(nodes, key=cost)


@lru_cache(maxsize=1 << 14)
def _raised(degree: int) -> float:
    return math.pow(degree, POWER)


def _tree_root(overlay: LiveOverlay[Node, Topic], nodes: Sequence[Node]) -> Node:
    among = set(nodes)
    return min(nodes, key=lambda node: (-len(overlay.uses[node].keys() & among), len(overlay.uses[node])))
