"""A topic-connected overlay that adapts to join, leave, subscribe and unsubscribe with bounded change.

Each topic keeps a tree of at most `levels` levels below its root: 1 is a star (topic diameter 2), 2 a two-level tree
(diameter 4). Trees share links; a link exists while a tree uses it. So, for any number of nodes,

- a join adds at most one link for each topic of the node, and removes none;
- a leave removes the node's own links only, and adds at most one for each child that the node has in some tree.

Nodes and topics are any hashable values. Among equal choices the first one wins, so the same calls give the same
overlay. Plain Python is fast enough, as each change is small.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:  # not at run time: a mesh that runs a designed overlay needs no numpy
    from research.overlay_designs.interest import Interest, Ints

Node = TypeVar("Node", bound=Hashable)
Topic = TypeVar("Topic", bound=Hashable)


class Change(NamedTuple, Generic[Node]):
    """The links to open and to close, each once and in one direction."""

    added: list[tuple[Node, Node]]
    removed: list[tuple[Node, Node]]


class Tree(Generic[Node]):
    """One topic's tree. The insertion order of the dictionaries decides between equal choices."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.parent: dict[Node, Node] = {}
        """The parent of each node but the root."""
        self.children: dict[Node, dict[Node, None]] = {root: {}}
        """The children of each node."""

    def depth(self, node: Node) -> int:
        """Return the number of links between `node` and the root."""
        depth = 0
        while node != self.root:
            node = self.parent[node]
            depth += 1
        return depth

    def hang(self, node: Node, parent: Node) -> None:
        """Make `node`, with its subtree, a child of `parent`."""
        self.parent[node] = parent
        self.children[parent][node] = None
        self.children.setdefault(node, {})

    def unhang(self, node: Node) -> None:
        """Detach `node`, with its subtree, from its parent."""
        del self.children[self.parent.pop(node)][node]


class LiveOverlay(Generic[Node, Topic]):
    """The overlay. Each operation returns the links that it added and removed."""

    def __init__(self, levels: int = 2) -> None:
        """Create an overlay without nodes. Raises ValueError unless `levels` is 1 or 2."""
        if levels not in (1, 2):
            raise ValueError(f"levels must be 1 or 2, not {levels}")
        self.levels = levels
        self.trees: dict[Topic, Tree[Node]] = {}
        self.topics: dict[Node, dict[Topic, None]] = {}
        self.uses: dict[Node, dict[Node, int]] = {}
        """For each node its neighbours, each with the number of trees that use the link."""
        self._journal: dict[frozenset[Node], tuple[Node, Node]] = {}
        """The links that the current change has added or removed so far."""

    def join(self, node: Node, topics: Iterable[Topic]) -> Change[Node]:
        """Add a new node with its topics. Raises ValueError if the node is in the overlay already."""
        if node in self.topics:
            raise ValueError(f"{node!r} is in the overlay")
        self.topics[node], self.uses[node] = {}, {}
        for topic in dict.fromkeys(topics):
            self._enter(node, topic)
        return self._change()

    def leave(self, node: Node) -> Change[Node]:
        """Remove a node that leaves or has died. Raises KeyError for an unknown node."""
        for topic in list(self.topics[node]):
            self._exit(node, topic)
        change = self._change()
        del self.topics[node], self.uses[node]
        return change

    def subscribe(self, node: Node, topic: Topic) -> Change[Node]:
        """Add a topic to a node; no change if the node has it. Raises KeyError for an unknown node."""
        if topic not in self.topics[node]:
            self._enter(node, topic)
        return self._change()

    def unsubscribe(self, node: Node, topic: Topic) -> Change[Node]:
        """Remove a topic from a node; no change if the node does not have it. Raises KeyError for an unknown node."""
        if topic in self.topics[node]:
            self._exit(node, topic)
        return self._change()

    def links(self) -> Iterator[tuple[Node, Node]]:
        """Yield all links, each once."""
        seen: set[Node] = set()
        for node, neighbours in self.uses.items():
            seen.add(node)
            yield from ((node, other) for other in neighbours if other not in seen)

    def degree(self, node: Node) -> int:
        """Return the number of links at `node`. Raises KeyError for an unknown node."""
        return len(self.uses[node])

    def _enter(self, node: Node, topic: Topic) -> None:
        self.topics[node][topic] = None
        tree = self.trees.get(topic)
        if tree is None:
            self.trees[topic] = Tree(node)
        else:
            tree.children[node] = {}
            self._hang(tree, node)

    def _exit(self, node: Node, topic: Topic) -> None:
        del self.topics[node][topic]
        tree = self.trees[topic]
        orphans = list(tree.children[node])
        for child in orphans:
            self._unhang(tree, child)
        if node != tree.root:
            self._unhang(tree, node)
        elif orphans:
            tree.root = self._heir(tree, orphans)
            orphans.remove(tree.root)
        else:
            del self.trees[topic]
        del tree.children[node]
        for child in sorted(orphans, key=lambda orphan: not tree.children[orphan]):  # those with children need the root
            self._hang(tree, child)

    def _heir(self, tree: Tree[Node], orphans: list[Node]) -> Node:
        """Return the new root: the child with the least degree after it is linked to all its siblings."""
        siblings = set(orphans)
        return min(orphans, key=lambda node: self.degree(node) - len(self.uses[node].keys() & siblings))

    def _hang(self, tree: Tree[Node], node: Node) -> None:
        """Give `node` the cheapest parent: one that it is linked to, else one of the least degree."""
        deepest = self.levels - (2 if tree.children[node] else 1)
        linked = self.uses[node]
        inner = [tree.root] if deepest == 0 else [tree.root, *tree.children[tree.root]]
        parent = min(inner, key=lambda other: (other not in linked, self.degree(other)))
        tree.hang(node, parent)
        self._use(node, parent, 1)

    def _unhang(self, tree: Tree[Node], node: Node) -> None:
        parent = tree.parent[node]
        tree.unhang(node)
        self._use(node, parent, -1)

    def _use(self, one: Node, other: Node, times: int) -> None:
        """Count one tree more (`times` 1) or one less (-1) that uses the link."""
        uses = self.uses[one].get(other, 0) + times
        if uses == (1 if times > 0 else 0):
            pair = frozenset((one, other))
            if pair in self._journal:
                del self._journal[pair]
            else:
                self._journal[pair] = (one, other)
        for a, b in ((one, other), (other, one)):
            if uses:
                self.uses[a][b] = uses
            else:
                del self.uses[a][b]

    def _change(self) -> Change[Node]:
        """Return the links changed since the last call, and clear the journal."""
        links, self._journal = list(self._journal.values()), {}
        return Change(
            [(one, other) for one, other in links if other in self.uses[one]],
            [(one, other) for one, other in links if other not in self.uses[one]],
        )


def live(interest: Interest, parent: Ints, levels: int) -> LiveOverlay[int, int]:
    """Return a `LiveOverlay` made of a designed overlay.

    `parent` is the parent node of each subscription, as computed by `two_level_trees.parents`; for stars (`levels` 1)
    it is the topic's centre. Raises ValueError if a tree is deeper than `levels`.
    """
    overlay: LiveOverlay[int, int] = LiveOverlay(levels)
    for node in range(interest.nodes):
        overlay.topics[node] = dict.fromkeys(interest.topics_of_node(node).tolist())
        overlay.uses[node] = {}
    for topic in range(interest.topics):
        nodes = interest.nodes_of_topic(topic).tolist()
        above = parent[interest.nodes_at[topic] : interest.nodes_at[topic + 1]].tolist()
        for node, up in zip(nodes, above, strict=True):
            if node == up:
                overlay.trees[topic] = Tree(node)
        tree = overlay.trees.get(topic)
        for node, up in zip(nodes, above, strict=True):
            if tree is None or node == up:
                continue
            tree.children.setdefault(up, {})
            tree.hang(node, up)
            for one, other in ((node, up), (up, node)):
                overlay.uses[one][other] = overlay.uses[one].get(other, 0) + 1
        if tree is not None and max(map(tree.depth, nodes)) > levels:
            raise ValueError(f"the tree of topic {topic} is deeper than {levels}")
    return overlay
