"""Two rings become one: level 0 is put in order from wherever the two know of each other (linearization).

After a partition, and after many crashes at once, each part is a ring of its own. What makes them one looks at level 0
only, where each step brings some right link nearer to its node, so that it comes to an end, and in one ring (after
Onus, Richa & Scheideler, Linearization: locally self-stabilizing sorting in graphs, 2007; zipped as in Shafaat, Ghodsi
& Haridi, Dealing with network partitions in structured overlay networks, 2009):

- A right link is never dropped: it goes to a nearer key, and the former neighbour is handed on to that one.
- Two nodes that point at the same one are never left so: the nearer of them is told to insert itself at the other.

So the rings close like zippers, to the right and to the left of every place where a key of one of them was put into
the other, and at as many places at once as the broker has keys (up to `STARTS`).
"""

from __future__ import annotations

from abc import ABC

from saps.marks import hit
from saps.overlay.frames.ring import Insert, RingSplit, SetLeft
from saps.overlay.ring.keys import BrokerRef, Key, Ref, between
from saps.overlay.ring.ring import Ring
from saps.overlay.ring.routing import Node, State

STARTS = 256
"""Own keys, evenly spread, that are inserted once more to merge two rings. More cost O(log n) frames each; with fewer
than there are keys the zippers between them take longer."""


class Merging(Ring, ABC):
    """The own nodes in level 0, which may find themselves in another ring than others."""

    def rejoin(self, contact: BrokerRef) -> None:
        """Insert own keys once more, starting at `contact`: merges its ring and this one."""
        for key in self._starts_of_merge():
            node = self.nodes[key]
            if node.state is State.LINKED:
                self._insert_at(node, contact)

    def meet(self, ref: Ref) -> None:
        """A key of another broker is in the overlay. If an own right link passes over it they are in two rings here: it
        is to be put into this one."""
        node = self.nearest(ref.key)
        if node is None or node.state is not State.LINKED or node.asked:
            return
        right = node.right[0]
        if right is None or right.key == ref.key or self._port.lost(right.broker) or self._port.lost(ref.broker):
            return
        if between(node.key, ref.key, right.key):
            self._port.send(ref.broker, RingSplit(ref, self._port.me))

    def claim(self, node: Node, left: Ref) -> None:
        """`left` points at a linked node. If the left neighbour known so far does so, too, one of them passes over the
        other, which is told to insert itself there."""
        known = node.left[0]
        if known is None or known == left or known.key in (left.key, node.key) or self._port.lost(known.broker):
            self.point(node, False, 0, left)
        elif left.key == node.key:
            return
        elif between(known.key, left.key, node.key):
            self.point(node, False, 0, left)
            self._port.send(left.broker, RingSplit(left, known.broker))
        else:
            self._port.send(known.broker, RingSplit(known, left.broker))

    def merge_right(self, node: Node, other: Ref | None) -> None:
        """A node of this ring was linked into another one, before `other`: keep the nearer right neighbour, hand the
        other one on to it."""
        right = node.right[0]
        if other is None or other.key == node.key or other == right:
            return
        if right is None or self._port.lost(right.broker) or right.key == node.key:
            self.doubts.relinked(node, None)
            self.point(node, True, 0, other)
        elif right.key == other.key:
            return
        elif between(node.key, other.key, right.key):
            self.point(node, True, 0, other)
            self._port.send(other.broker, Insert(0, None, right))
        else:
            hit("farther neighbour of another ring handed on")
            self._port.send(right.broker, Insert(0, None, other))
        self.touched.append((node.key, node.right[0]))
        self.levels.mend()

    def _starts_of_merge(self) -> list[Key]:
        """Own keys spread over all of them."""
        count = len(self.order)
        starts = min(count, STARTS)
        return [self.order[i * count // starts] for i in range(starts)]

    def _insert_at(self, node: Node, broker: BrokerRef) -> None:
        self.unanswered.ask_again(node)
        self._port.send(broker, Insert(0, None, node.ref))

    def _on_set_left(self, sender: BrokerRef, frame: SetLeft) -> None:
        node = self.nodes.get(frame.at)
        if node is None:
            return
        known = node.left[0]
        if known is None or known.key in (frame.gone, node.key) or self._port.lost(known.broker):
            self.point(node, False, 0, frame.left)
        elif node.state is State.LINKED and known.broker != sender:
            self.claim(node, frame.left)
        elif between(known.key, frame.left.key, node.key):
            self.point(node, False, 0, frame.left)  # who knows that it was `known` says so
        elif node.state is State.LINKED:
            self.claim(node, frame.left)

    def _on_ring_split(self, sender: BrokerRef, frame: RingSplit) -> None:
        node = self.nodes.get(frame.ref.key)
        if node is None or node.ref != frame.ref or node.state is not State.LINKED:
            return
        if frame.at is None:  # the answer to a `Check`
            left = node.left[0]
            if left is not None and left.broker == sender:
                self.point(node, False, 0, None)  # else the one that points here might be taken for farther
            if node.asked:
                return
        self._insert_at(node, frame.at or sender)
