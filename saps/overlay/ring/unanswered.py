"""Own nodes that wait for an answer to their insertion or removal: it is repeated until there is one."""

from __future__ import annotations

from collections.abc import Callable

from saps.overlay.port import Port
from saps.overlay.ring.keys import Key
from saps.overlay.ring.routing import Node, State

RETRY = 0.5
"""Seconds after which an insertion or removal that got no answer is repeated."""


class Unanswered:
    """Those of one broker."""

    def __init__(
        self, port: Port, nodes: dict[Key, Node], insert: Callable[[Node], None], unlink: Callable[[Node], None]
    ) -> None:
        """`insert` and `unlink` send the question again."""
        self._port = port
        self._nodes = nodes
        self._insert = insert
        self._unlink = unlink
        self._waiting: dict[Key, None] = {}
        """In the order they began to (a set's order would differ from run to run)."""
        self.asked: dict[Key, None] = {}
        """Linked nodes that have been inserted once more."""
        self._looking = False

    def wait(self, node: Node) -> None:
        """An answer is awaited."""
        node.since = self._port.now
        self._waiting[node.key] = None
        if not self._looking:
            self._looking = True
            self._port.after(RETRY / 2, self._look)

    def ask_again(self, node: Node) -> None:
        """A linked node is inserted once more."""
        node.asked += 1
        self.asked[node.key] = None
        self.wait(node)

    def answered(self, node: Node) -> None:
        """An insertion was answered."""
        node.asked = max(0, node.asked - 1)
        if not node.asked:
            self.asked.pop(node.key, None)

    def forget(self, node: Node) -> None:
        """Nothing is awaited any more."""
        self._waiting.pop(node.key, None)
        self.asked.pop(node.key, None)

    def _look(self) -> None:
        """Repeat what got no answer."""
        self._looking = False
        now = self._port.now
        for key in list(self._waiting):
            node = self._nodes.get(key)
            if node is None or (node.state is State.LINKED and not node.asked):
                self._waiting.pop(key, None)
                self.asked.pop(key, None)
            elif now - node.since >= RETRY:
                node.since = now
                if node.state is State.LEAVING:
                    self._unlink(node)
                else:
                    node.asked = min(node.asked, 1)  # what has no answer by now gets none
                    self._insert(node)
        if self._waiting and not self._looking:
            self._looking = True
            self._port.after(RETRY / 2, self._look)
