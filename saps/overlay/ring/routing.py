"""The nodes of one broker, and the routing of frames among them and to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from msgspec.structs import replace

from saps.overlay.frames.base import Frame
from saps.overlay.frames.calls import Gone
from saps.overlay.frames.ring import Routed
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef, Key, Ref, between, membership
from saps.overlay.ring.sorted_keys import SortedKeys

MAX_HOPS = 256
"""Hops after which a routed frame is dropped; its sender repeats it."""

Done = Callable[[], None]


class State(Enum):
    JOINING = "joining"
    LINKED = "linked"
    LEAVING = "leaving"


class Search(NamedTuple):
    """The highest level whose neighbours were searched, and the number of missing answers."""

    level: int
    awaited: int


NOT_SOUGHT = Search(0, 0)


class Node:
    """One key of this broker and its neighbours: `right[i]`, `left[i]` in the list of level i."""

    __slots__ = (
        "asked",
        "attempts",
        "doubt_until",
        "gone",
        "granted",
        "key",
        "left",
        "ref",
        "right",
        "search",
        "since",
        "state",
        "vector",
        "waiters",
        "waiting",
    )

    def __init__(self, ref: Ref, now: float) -> None:
        self.ref = ref
        self.key = ref.key
        self.vector = membership(ref.key)
        self.state = State.JOINING
        self.right: list[Ref | None] = [None]
        self.left: list[Ref | None] = [None]
        self.granted: tuple[Key, Ref | None] | None = None
        """The last node linked to the right of this one, and the right neighbour that it was told."""
        self.waiting: list[tuple[BrokerRef, Frame]] = []
        """Frames that came too early (joining), or that would change the right link (leaving)."""
        self.waiters: list[Done] = []
        self.since = now
        self.doubt_until = 0.0
        """Until then a live node may lie between this one and its right neighbour, as their common neighbour has
        crashed and it has not noticed yet. The result of a range call over this link is incomplete."""
        self.gone: tuple[Ref, float] | None = None
        """The right neighbour that its broker has reported missing, and since when."""
        self.attempts = 0
        """Insertions sent so far."""
        self.asked = 0
        """Pending insertions of the linked node. It does not leave before they are answered, as one of them could
        insert it again after its removal."""
        self.search = NOT_SOUGHT

    def links(self, rightward: bool) -> list[Ref | None]:
        return self.right if rightward else self.left

    def known(self, level: int, rightward: bool) -> Ref | None:
        """Return the neighbour at a level, or None."""
        links = self.links(rightward)
        return links[level] if level < len(links) else None

    def hint(self, level: int, rightward: bool) -> Ref | None:
        """Return the neighbour at the highest level up to `level` that has one; None at the end of the list."""
        links = self.links(rightward)
        for i in range(min(level, len(links) - 1), -1, -1):
            ref = links[i]
            if ref is not None:
                return ref if (ref.key > self.key) == rightward and ref.key != self.key else None
        return None


class Routing:
    """The nodes of one broker, by key and in order, and the routes from them to any key."""

    def __init__(self, port: Port, on_end: Callable[[Key], None]) -> None:
        """`on_end` is called with each key that is added to `ends`."""
        self._port = port
        self._on_end = on_end
        self.nodes: dict[Key, Node] = {}
        self.order = SortedKeys()
        """Keys of the nodes that are in the overlay, sorted."""
        self.ends = SortedKeys()
        """Keys in `order` whose right link does not lead to the next own key, each the last of a row of own nodes. A
        search leaves this broker only from these, so the others need no upper neighbours."""
        self._beside: dict[Key, None] = {}
        """Nodes next to another broker's node in level 0, or with a lost link."""
        self._next_to: dict[BrokerRef, int] = {}
        """By other broker: the number of own nodes' links to it in level 0."""
        self._linking: dict[BrokerRef, set[Key]] = {}
        """By other broker: the own nodes with a link to it on any level."""
        self.contact: BrokerRef | None = None
        """Where to start while no own node is linked."""

    def point(self, node: Node, rightward: bool, level: int, ref: Ref | None) -> None:
        """Set a link. All links are set here, which keeps the indexes by broker up to date."""
        links = node.links(rightward)
        before, links[level] = links[level], ref
        if ref is not None and ref.broker != self._port.me:
            self._linking.setdefault(ref.broker, set()).add(node.key)
        if before is not None and before.broker != self._port.me and (ref is None or ref.broker != before.broker):
            self._unlinked_from(node, before.broker)
        if not level:
            self._count_next_to(before, -1)
            self._count_next_to(ref, 1)
            self._look_beside(node)
            if rightward:
                self._look_at_end(node)

    def _count_next_to(self, ref: Ref | None, links: int) -> None:
        """Add to the number of links to a neighbour's broker in level 0."""
        if ref is not None and ref.broker != self._port.me:
            count = self._next_to.get(ref.broker, 0) + links
            if count:
                self._next_to[ref.broker] = count
            else:
                del self._next_to[ref.broker]

    def _unlinked_from(self, node: Node, broker: BrokerRef) -> None:
        """Update the index after a node has lost a link to a broker, which may have been the last."""
        linking = self._linking.get(broker)
        if linking is not None and not any(
            ref is not None and ref.broker == broker for links in (node.right, node.left) for ref in links
        ):
            linking.discard(node.key)
            if not linking:
                del self._linking[broker]

    def _look_beside(self, node: Node) -> None:
        """Update `_beside` after a neighbour of a node in level 0 may have changed."""
        me, right, left = self._port.me, node.right[0], node.left[0]
        if right is not None and left is not None and right.broker == me and left.broker == me:
            self._beside.pop(node.key, None)
        else:
            self._beside[node.key] = None

    def _look_at_end(self, node: Node) -> None:
        """Update `ends` after the right neighbour of a node in level 0, or the next own key, may have changed."""
        key, right = node.key, node.right[0]
        if node.state is State.JOINING or self.nodes.get(key) is not node:
            return
        following = self.order.after(key)
        if right is not None and following is not None and right.key == following and right.broker == self._port.me:
            self.ends.discard(key)
        elif self.ends.add(key):
            self._on_end(key)

    def into_order(self, node: Node) -> None:
        """Add a node that is in the overlay now."""
        self.order.add(node.key)
        self._look_at_end(node)
        self._look_before(node.key)

    def out_of_order(self, node: Node) -> None:
        """Forget a node that has left the overlay."""
        self.order.discard(node.key)
        self.ends.discard(node.key)
        self._beside.pop(node.key, None)
        del self.nodes[node.key]
        for links in (node.right, node.left):
            self._count_next_to(links[0], -1)
            for ref in links:
                if ref is not None and (linking := self._linking.get(ref.broker)) is not None:
                    linking.discard(node.key)
                    if not linking:
                        del self._linking[ref.broker]
        self._look_before(node.key)

    def _look_before(self, key: Key) -> None:
        before = self.order.before(key)
        if before is not None:
            self._look_at_end(self.nodes[before])

    def last_in_row(self, node: Node, end: Key) -> Node:
        """Return the last own node before `end` that right links reach from a node without leaving this broker."""
        if node.state is State.JOINING:
            return node
        row = self.ends.at_or_after(node.key)
        if row is not None and row < end:
            return self.nodes[row]
        before = self.order.before(end)
        return node if before is None or before <= node.key else self.nodes[before]

    def is_end(self, node: Node) -> bool:
        """Return whether a node is the last of a row of own nodes."""
        return self.ends.at_or_after(node.key) == node.key

    def end_of_row(self, node: Node) -> Node:
        """Return the last own node of a linked node's row."""
        end = self.ends.at_or_after(node.key)
        return node if end is None else self.nodes[end]

    def start_of_row(self, node: Node) -> Node:
        """Return the first own node of a linked node's row."""
        end = self.ends.before(node.key)
        start = self.order.first() if end is None else self.order.after(end)
        return node if start is None else self.nodes[start]

    def nearest(self, target: Key, but: Key | None = None) -> Node | None:
        """Return the own node nearest to the left of `target` around the ring, leaving out `but`."""
        order = self.order
        key = order.before(target) or order.last()
        if key is not None and key == but:
            key = order.before(key) or order.last()
        return None if key is None or key == but else self.nodes[key]

    def next_hop(self, node: Node, target: Key) -> Ref | None:
        """Return the farthest right neighbour of `node` that is not past `target`; `node` is the own node nearest to
        `target`. A link to an own node in between must be outdated, and is ignored."""
        me = self._port.me
        for ref in reversed(node.right):
            if ref is None or ref.broker == me or not between(node.key, ref.key, target):
                continue
            if self._port.reachable(ref.broker):
                return ref
        return None

    def takes(self, node: Node, target: Key) -> bool:
        """Return whether `target` belongs directly to the right of `node`."""
        right = node.right[0]
        return right is None or between(node.key, target, right.key) or self._port.lost(right.broker)

    def check_via(self, sender: BrokerRef, frame: Routed) -> None:
        if frame.via is not None and frame.via not in self.nodes:
            self._port.send(sender, Gone(frame.via))

    def forward(self, node: Node | None, target: Key, frame: Routed) -> bool:
        """Send a routed frame one hop nearer to `target`. Returns False, and drops the frame, if there is no way
        now."""
        if frame.hops >= MAX_HOPS:
            return False
        if node is None:
            if self.contact is None:
                return False
            self._port.send(self.contact, replace(frame, hops=frame.hops + 1, via=None))
            return True
        ref = self.next_hop(node, target)
        if ref is None:
            return False
        self._port.send(ref.broker, replace(frame, hops=frame.hops + 1, via=ref.key))
        return True
