"""Right links in doubt: where a crash has cut the ring, a live node may lie between two that point at each other.

The result of a range call over such a link is incomplete (`Node.doubt_until`)."""

from __future__ import annotations

from saps.overlay.frames.ring import Check
from saps.overlay.port import Port
from saps.overlay.ring.keys import Key, Ref
from saps.overlay.ring.routing import Node, State
from saps.overlay.ring.sorted_keys import SortedKeys

LOOK = 0.25
"""Seconds between two checks of the doubts."""
DOUBT_AT_MOST = 120.0
"""Longest doubt in seconds, whatever other brokers report: twice the slowest heartbeat, and well below the limit of a
frame."""


class Doubts:
    """The doubts about the right links of one broker's nodes."""

    def __init__(self, port: Port, nodes: dict[Key, Node]) -> None:
        self._port = port
        self._nodes = nodes
        self.keys = SortedKeys()
        """Keys of the nodes whose right link is or was in doubt."""
        self._looking = False

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._port.after(LOOK, self._look)

    def _look(self) -> None:
        """Renew the doubts about gaps that are still open, and forget the others when they end."""
        self._looking = False
        for key in list(self.keys):
            node = self._nodes.get(key)
            if node is not None and node.right[0] is None and node.state is not State.JOINING:
                self.keep(node, self._port.grace)
            elif node is None or node.doubt_until <= self._port.now:
                self.keys.discard(key)
        if len(self.keys):
            self._look_later()

    def relinked(self, node: Node, right: Ref | None) -> None:
        """Note that a right link is about to be set. `right` is the previous one; if that was lost (None), the new link
        is in doubt."""
        if right is None:
            self.until(node, self._port.grace)

    def until(self, node: Node, seconds: float) -> None:
        """Put the right link in doubt for at least so many seconds from now."""
        if seconds > 0:
            node.doubt_until = max(node.doubt_until, self._port.now + min(seconds, DOUBT_AT_MOST))
            self.keys.add(node.key)
            self._look_later()

    def keep(self, node: Node, seconds: float) -> None:
        """Keep a right link in doubt, and the link of the left neighbour as well. Nodes inserted into a gap one after
        the other stay in doubt until the last of them has a right neighbour: another crash may delay the node that has
        to close the gap."""
        self.until(node, seconds)
        left = node.left[0]
        if left is not None and left.key != node.key:
            self._port.send(left.broker, Check(left.key, node.ref, seconds))

    def left(self, node: Node) -> float:
        """Return for how many more seconds the right link is in doubt."""
        return max(0.0, node.doubt_until - self._port.now)
