"""Right links in doubt: where a crash has cut the ring, a live node may stand between two that point at each other.

What a range call brings from there is not complete (`Node.doubt_until`)."""

from __future__ import annotations

from saps.overlay.frames.ring import Check
from saps.overlay.port import Port
from saps.overlay.ring.keys import Key, Ref
from saps.overlay.ring.routing import Node, State
from saps.overlay.ring.sorted_keys import SortedKeys

LOOK = 0.25
"""Seconds between two looks at what is in doubt."""
DOUBT_AT_MOST = 120.0
"""Seconds, whatever others say: twice the slowest heartbeat, and well below what a frame may tell."""


class Doubts:
    """Those of one broker's nodes."""

    def __init__(self, port: Port, nodes: dict[Key, Node]) -> None:
        self._port = port
        self._nodes = nodes
        self.keys = SortedKeys()
        """Nodes whose right link is in doubt, or was."""
        self._looking = False

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._port.after(LOOK, self._look)

    def _look(self) -> None:
        """Keep up the doubt about gaps that are still open; forget what is over."""
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
        """A right link is about to be made; `right` is the one before, None if that was lost."""
        if right is None:
            self.until(node, self._port.grace)

    def until(self, node: Node, seconds: float) -> None:
        """The right link is in doubt for so long from now on, at least."""
        if seconds > 0:
            node.doubt_until = max(node.doubt_until, self._port.now + min(seconds, DOUBT_AT_MOST))
            self.keys.add(node.key)
            self._look_later()

    def keep(self, node: Node, seconds: float) -> None:
        """What was put into a gap one after the other stays in doubt until something is behind the last of it: whoever
        is to close the gap may be held up by another crash."""
        self.until(node, seconds)
        left = node.left[0]
        if left is not None and left.key != node.key:
            self._port.send(left.broker, Check(left.key, node.ref, seconds))

    def left(self, node: Node) -> float:
        """Seconds for which the right link is in doubt yet."""
        return max(0.0, node.doubt_until - self._port.now)
