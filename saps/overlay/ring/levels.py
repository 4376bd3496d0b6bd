"""The upper levels of the Skip Graph: finds the neighbours of own nodes there, and keeps them up to date."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from saps.overlay.frames.calls import Gone
from saps.overlay.frames.ring import Level, Relink, Seek
from saps.overlay.port import Port
from saps.overlay.ring.keys import MEMBERSHIP_BITS, BrokerRef, Key, Ref, common_prefix, membership
from saps.overlay.ring.routing import MAX_HOPS, Node, Routing, Search, State

RISE_AT_MOST = 32
"""Most rounds between two nodes that search all their upper neighbours again, if the last search found nothing new."""
RISE_AFTER = 0.01
"""Seconds until the last node of a row searches its upper neighbours, and between two groups of such nodes."""
RISES = 64
"""Nodes in a group: less than 5 ms of work. Meanwhile searches for the others take more hops."""


class Levels:
    """The upper levels of one broker's nodes.

    Own nodes that follow each other in the ring form a row. Only the last node of a row needs upper neighbours, since a
    search never leaves the row from the others."""

    def __init__(self, port: Port, routing: Routing, meet: Callable[[Ref], None]) -> None:
        """`meet` is called with each key of another broker that is found in the overlay."""
        self._port = port
        self._routing = routing
        self._meet = meet
        self._risen = 0
        self._rise_every = self._rise_in = 1
        self._rising: Key | None = None
        """The node that last searched all its upper neighbours."""
        self._improved = False
        """Whether that search found nearer neighbours, or the ring was repaired."""
        self._to_rise: deque[Key] = deque()
        """Last nodes of rows that have yet to search, oldest first."""

    def mend(self) -> None:
        """Search upper neighbours soon again: the ring has changed so much that they may be wrong."""
        self._improved = True
        self._rise_in = 1

    def rise_again(self) -> None:
        """Let one node search all its upper neighbours again, the more rarely the less such searches find. While many
        keys came and went at once, earlier searches may have ended too soon."""
        self._rise_in -= 1
        if self._rise_in > 0 or not len(self._routing.ends):
            return
        self._rise_every = 1 if self._improved else min(2 * self._rise_every, RISE_AT_MOST)
        self._rise_in, self._improved = self._rise_every, False
        self._risen = (self._risen + 1) % len(self._routing.ends)
        self._rising = self._routing.ends[self._risen]
        self.rise(self._routing.nodes[self._rising], anew=True)

    def rise_soon(self, key: Key) -> None:
        """Schedule a search for the last key of a row. The delay helps, as other keys are often inserted behind it at
        once."""
        if not self._to_rise:
            self._port.after(RISE_AFTER, self._rise_ends)
        self._to_rise.append(key)

    def _rise_ends(self) -> None:
        """Search upper neighbours for the scheduled nodes that are still the last of a row."""
        for _ in range(min(RISES, len(self._to_rise))):
            node = self._routing.nodes.get(self._to_rise.popleft())
            if node is not None and node.state is State.LINKED:
                self.rise(node)
        if self._to_rise:
            self._port.after(RISE_AFTER, self._rise_ends)

    def rise(self, node: Node, *, anew: bool = False) -> None:
        """Search the missing upper neighbours of a node, or all of them if `anew`."""
        if not self._routing.is_end(node):
            return  # a search never leaves the row from here
        gaps = [
            (links.index(None, 1), rightward)
            for rightward in (True, False)
            if None in (links := node.links(rightward))[1:]
        ]
        if anew or not gaps:
            self._seek(node, 1)
        elif levels := [level for level, rightward in gaps if self._start(node, level, rightward)]:
            self._seek(node, min(levels))

    def _seek(self, node: Node, level: int) -> None:
        """Search the neighbours of a node in the list of `level`, then of the next one, until the node is alone
        there."""
        if level >= MEMBERSHIP_BITS:
            return
        starts = [
            (rightward, start)
            for rightward in (True, False)
            if (start := self._start(node, level, rightward)) is not None
        ]
        node.search = Search(level, len(starts))
        for rightward, start in starts:
            seek = Seek(start.key, level, rightward, node.ref, MAX_HOPS)
            if start.broker == self._port.me:
                self.on_seek(self._port.me, seek)
            else:
                self._port.send(start.broker, seek)

    def _start(self, node: Node, level: int, rightward: bool) -> Ref | None:
        """Return where to start the search for the neighbour at `level`; None if no search would use that link."""
        start = node.known(level - 1, rightward)
        return None if start is None or self._past_next(node, start, rightward) else node.hint(level - 1, rightward)

    def _past_next(self, node: Node, ref: Ref, rightward: bool) -> bool:
        """Return whether a link leads past the next own node. A search starts at the own node nearest to its target, so
        it never uses such a link, nor those of the levels above it."""
        following = self._routing.order.after(node.key) if rightward else self._routing.order.before(node.key)
        return following is not None and (ref.key > following) == rightward and ref.key != following

    def on_seek(self, sender: BrokerRef, frame: Seek) -> None:
        """Walk along level - 1 until a node shares `level` bits with the searching one: that is its neighbour at
        `level`.

        The walk steps over a row of own nodes at once, as only the last of a row has links above level 0. To the upper
        levels a broker with thousands of keys therefore looks like one with a few. The neighbour learns of the
        searching node as well, so one search repairs both sides. A broker whose link led to a missing node is told."""
        if frame.origin.broker != self._port.me:
            self._meet(frame.origin)
        vector = membership(frame.origin.key)
        at: Key | None = frame.at
        found: Ref | None = None
        while at is not None:
            node = self._routing.nodes.get(at)
            if node is None:
                self._port.send(sender, Gone(at))
                break
            if node.state is State.JOINING:
                break
            if frame.rightward:
                node = self._routing.end_of_row(node)
            if self._routing.is_end(node) and common_prefix(node.vector, vector) >= frame.level:
                found = node.ref
                self._improve(node, frame.level, not frame.rightward, frame.origin)
                break
            if not frame.rightward:
                node = self._routing.start_of_row(node)
            ahead = node.hint(frame.level - 1, frame.rightward)
            if ahead is None or frame.ttl <= 0:
                break
            if ahead.broker != self._port.me:
                self._port.send(
                    ahead.broker, Seek(ahead.key, frame.level, frame.rightward, frame.origin, frame.ttl - 1)
                )
                return
            sender, at = self._port.me, ahead.key
        answer = Level(frame.origin.key, frame.level, frame.rightward, found)
        if frame.origin.broker == self._port.me:
            self.on_level(self._port.me, answer)
        else:
            self._port.send(frame.origin.broker, answer)

    def on_level(self, sender: BrokerRef, frame: Level) -> None:
        """Take the answer to a search at one level. When both sides are answered, search the next level: its list is
        part of this level's list, so this level's neighbours must be known first."""
        node = self._routing.nodes.get(frame.at)
        if node is None:
            return
        if frame.found is not None:
            if frame.found.broker != self._port.me:
                self._meet(frame.found)
            if self._improve(node, frame.level, frame.rightward, frame.found) and node.key == self._rising:
                self._improved = True
        else:
            self._end(node, frame.level, frame.rightward)
        if frame.level == node.search.level:
            node.search = Search(frame.level, node.search.awaited - 1)
            if node.search.awaited == 0:
                self._seek(node, frame.level + 1)

    def _improve(self, node: Node, level: int, rightward: bool, ref: Ref) -> bool:
        """Take `ref` as neighbour if it is nearer than the known one, or that one is lost; return whether it was
        taken."""
        links = node.links(rightward)
        while len(links) <= level:
            links.append(None)
        known = links[level]
        if known == ref:
            return False
        if known is None or self._port.lost(known.broker) or known.key == ref.key or (ref.key < known.key) == rightward:
            self._routing.point(node, rightward, level, ref)
            return True
        return False

    def _end(self, node: Node, level: int, rightward: bool) -> None:
        """Note that a search along this side found no neighbour at a level. If none is known above it, drop the levels
        from there on."""
        links = node.links(rightward)
        if level < len(links) and links[level] is None:
            above = next((ref for ref in links[level:] if ref is not None), None)
            if above is None:
                del links[level:]
            else:
                self._routing.point(node, rightward, level, above)  # who is in a list above is in this one

    def part(self, node: Node) -> None:
        """Tell the upper neighbours of a node that has left the ring, each with the neighbour on the other side."""
        for rightward in (True, False):
            for level in range(1, len(node.links(rightward))):
                ref = node.links(rightward)[level]
                others = node.links(not rightward)
                if ref is not None:
                    other = others[level] if level < len(others) else None
                    self._port.send(ref.broker, Relink(ref.key, level, not rightward, node.key, other))

    def on_relink(self, sender: BrokerRef, frame: Relink) -> None:
        """Replace a neighbour that leaves by its neighbour on the other side. The replacement must lie on the same side
        of this node, as two nodes that leave at the same time may name each other."""
        node = self._routing.nodes.get(frame.at)
        if node is None or frame.level >= len(node.links(frame.rightward)):
            return
        links = node.links(frame.rightward)
        ref = links[frame.level]
        if ref is not None and ref.key == frame.gone:
            beyond = frame.ref is not None and (frame.ref.key > node.key) == frame.rightward
            self._routing.point(node, frame.rightward, frame.level, frame.ref if beyond else None)
