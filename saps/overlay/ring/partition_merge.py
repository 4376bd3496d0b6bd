"""Merges two rings into one: sorts level 0 from wherever the two rings know of each other (linearization).

After a partition, or many crashes at once, each part is a ring of its own. The merge looks at level 0 only. Each step
brings a right link nearer to its node, so the merge ends, and ends in one ring (after Onus, Richa & Scheideler,
Linearization: locally self-stabilizing sorting in graphs, 2007; from many places at once as in Shafaat, Ghodsi &
Haridi, Dealing with network partitions in structured overlay networks, 2009):

- A right link is never dropped. It moves to a nearer key, and the previous neighbour is passed on to that key.
- If two nodes point at the same one, the nearer of them is told to insert itself at the other.

The rings thus close to the right and to the left of every place where a key of one was inserted into the other. A
broker starts at as many places as it has keys, at most `STARTS`.
"""

from __future__ import annotations

from abc import ABC

from saps.marks import hit
from saps.overlay.frames.ring import Insert, RingSplit, SetLeft
from saps.overlay.ring.keys import BrokerRef, Key, Ref, between
from saps.overlay.ring.ring import Ring
from saps.overlay.ring.routing import Node, State

STARTS = 256
"""Most own keys, evenly spread, that a broker inserts again to merge two rings. Each costs O(log n) frames; with fewer
the merge takes longer."""


class Merging(Ring, ABC):
    """The own nodes in level 0, with the merge of two rings."""

    def rejoin(self, contact: BrokerRef) -> None:
        """Merge the ring of `contact` and this one: insert own keys again, starting at `contact`."""
        for key in self._starts_of_merge():
            node = self.nodes[key]
            if node.state is State.LINKED:
                self._insert_at(node, contact)

    def meet(self, ref: Ref) -> None:
        """Take note of another broker's key in the overlay. If an own right link passes over it, the two are in
        different rings, and the key has to be inserted into this one."""
        node = self.nearest(ref.key)
        if node is None or node.state is not State.LINKED or node.asked:
            return
        right = node.right[0]
        if right is None or right.key == ref.key or self._port.lost(right.broker) or self._port.lost(ref.broker):
            return
        if between(node.key, ref.key, right.key):
            self._port.send(ref.broker, RingSplit(ref, self._port.me))

    def claim(self, node: Node, left: Ref) -> None:
        """Note that `left` points at a linked node. If the known left neighbour does so too, the farther of the two
        skips the nearer one, and the nearer one is told to insert itself there."""
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
        """Handle a node that was linked into another ring as well, before `other`: keep the nearer of both right
        neighbours and pass the other one on to it."""
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
        """Return at most `STARTS` own keys, evenly spread."""
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
