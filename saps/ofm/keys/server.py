"""The key server: who holds the key of which topic's tree. Part of an OFGate while that leads (decision 084).

Each change of a tree's brokers gives its group a new secret. Those who stay get it wrapped, by way of each other
(`saps.overlay.delivery.broadcast`): O(log n) messages leave from here, with O(log n) wrapped keys each. Those who
come, and whoever missed something, get their own key and all above it straight from here, over a link that nobody else
reads. Only then does the topic go on: so its senders switch to a key that its receivers have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Protocol

from saps.ofm.keys.hierarchy import Hierarchy, Key
from saps.ofm.keys.sealing import LABEL, label_of
from saps.overlay.delivery.tree import by_place
from saps.overlay.frames.delivery import GroupKeys
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

OVERLAP = 6.0
"""Seconds for which a broker still accepts what was sealed with a key after it has got the next one; in half of it at
most everyone has switched over. Longer lets one who has left write for longer, shorter leaves less time to tell."""
PATIENCE = 2.0
"""Seconds for which a topic waits for brokers that do not confirm their keys. Less than half of `OVERLAP`."""
ROUND = 0.6
"""Seconds for one attempt to reach brokers."""
AGAIN, AGAIN_AT_MOST = 0.1, 3.0
"""Seconds between two attempts at one that does not confirm; doubles each time."""
WORN = 1 << 31
"""Keys after which a hierarchy is given up for a new one: their names are 4 bytes long in datagrams."""

Done = Callable[[], None]


class Tell(Protocol):
    """`saps.overlay.delivery.broadcast.Broadcaster.tell`."""

    def __call__(
        self,
        brokers: Iterable[BrokerRef],
        body: GroupKeys,
        timeout: float,
        done: Callable[[list[BrokerRef]], None],
        /,
    ) -> None: ...


class _Group:
    """The brokers of one topic's tree, and their keys."""

    def __init__(self, name: bytes, draw: Callable[[int], bytes]) -> None:
        self.name = name
        self.hierarchy: Hierarchy[BrokerRef] = Hierarchy(name, draw)
        self.holders: set[BrokerRef] = set()
        """Who has confirmed the present secret."""
        self.serial = 0
        """Counts the changes."""
        self.then: Done | None = None
        """What waits for the present secret to be with all."""

    @property
    def members(self) -> set[BrokerRef]:
        return self.hierarchy.members

    @property
    def root(self) -> Key:
        root = self.hierarchy.root
        assert root is not None, "a group has members"
        return root


class KeyServer:
    """Of one term of OFGate. `close` it when that does not lead any more: the keys that are out stay good."""

    def __init__(self, port: Port, tell: Tell, draw: Callable[[int], bytes], late: Callable[[str], None]) -> None:
        """`draw` gives so many random bytes, fit for secrets. `late` is called with a topic when one more broker
        holds its key, after the others were told to use it."""
        self._port = port
        self._tell = tell
        self._draw = draw
        self._late = late
        self._groups: dict[str, _Group] = {}
        self._closed = False
        self.changes = 0
        """New secrets so far."""

    def close(self) -> None:
        """Send nothing more, and call nobody back."""
        self._closed = True

    def holders(self, topic: str) -> Set[BrokerRef]:
        """Who has confirmed the topic's present key: these can read what is sealed with it."""
        group = self._groups.get(topic)
        return frozenset() if group is None else group.holders

    def label(self, topic: str) -> bytes:
        """Names the topic's present key in datagrams; empty if there is none."""
        group = self._groups.get(topic)
        return b"" if group is None else label_of(topic, group.root.secret)

    def fits(self, topic: str, members: Set[BrokerRef]) -> bool:
        """Are just these the members of the topic's group?"""
        group = self._groups.get(topic)
        return (group.members if group is not None else set()) == members

    def change(self, topic: str, members: Set[BrokerRef], then: Done, *, renew: bool = False) -> None:
        """From now on these brokers, and nobody else, get the topic's key. `then` runs when those that live hold it, or
        `PATIENCE` is over. Nothing is renewed if nothing has changed, but with `renew`."""
        if not members:
            self.drop(topic)
            then()
            return
        group = self._groups.get(topic)
        if group is not None and group.hierarchy.drawn > WORN:
            self.drop(topic)
            group = None
        if group is None:
            group = self._groups[topic] = _Group(self._draw(LABEL), self._draw)
        if group.members == members and not renew:
            then()
            return
        self._renew(topic, group, members, then)

    def _renew(self, topic: str, group: _Group, members: Set[BrokerRef], then: Done) -> None:
        self.changes += 1
        group.serial += 1
        gone, joined = group.members - members, members - group.members
        staying, group.holders, group.then = group.holders & members, set(), then
        wraps = group.hierarchy.change(self._in_order(joined), self._in_order(gone))
        serial = group.serial
        body = GroupKeys(topic, group.name, group.root.id, [*wraps], OVERLAP)
        if staying:
            self._tell(staying, body, ROUND, lambda missing: self._told(topic, group, serial, staying, missing))
        for member in self._in_order(members - staying):
            self._welcome(topic, group, serial, member, AGAIN)
        self._part(topic, group, gone)

        def over() -> None:
            if group.serial == serial:
                self._finish(group)

        self._port.after(PATIENCE, over)

    def drop(self, topic: str) -> None:
        """There is no tree any more, and nobody needs the topic's keys."""
        group = self._groups.pop(topic, None)
        if group is not None:
            group.serial += 1
            self._part(topic, group, group.members)

    # --- telling --------------------------------------------------------------------------------------------------

    def _welcome(self, topic: str, group: _Group, serial: int, member: BrokerRef, pause: float) -> None:
        """Give one broker its own key and all above it, until it has them."""
        if self._closed or group.serial != serial:
            return
        keys = group.hierarchy
        body = GroupKeys(topic, group.name, group.root.id, [*keys.path(member)], OVERLAP, keys.leaf(member))

        def told(missing: list[BrokerRef]) -> None:
            self._told(topic, group, serial, {member}, missing, pause)

        self._tell((member,), body, ROUND, told)

    def _told(
        self,
        topic: str,
        group: _Group,
        serial: int,
        asked: Set[BrokerRef],
        missing: list[BrokerRef],
        pause: float = 0.0,
    ) -> None:
        if self._closed or group.serial != serial:
            return
        found = asked - set(missing)
        group.holders |= found
        for member in self._in_order(asked - found):
            self._again(topic, group, serial, member, pause)
        if group.then is None:
            if found:
                self._late(topic)
        elif all(member in group.holders or self._port.lost(member) for member in group.members):
            self._finish(group)

    def _again(self, topic: str, group: _Group, serial: int, member: BrokerRef, pause: float) -> None:
        following = min(max(2 * pause, AGAIN), AGAIN_AT_MOST)
        self._port.after(pause, lambda: self._welcome(topic, group, serial, member, following))

    def _finish(self, group: _Group) -> None:
        then, group.then = group.then, None
        if then is not None and not self._closed:
            then()

    def _in_order(self, brokers: Iterable[BrokerRef]) -> list[BrokerRef]:
        return by_place(brokers, self._port.order)

    def _part(self, topic: str, group: _Group, gone: Set[BrokerRef]) -> None:
        """Those that have left may forget their keys. It does not matter whether they hear of it, or do."""
        living = [member for member in gone if not self._port.lost(member)]
        if living:
            self._tell(living, GroupKeys(topic, group.name, 0, [], OVERLAP), ROUND, lambda missing: None)
