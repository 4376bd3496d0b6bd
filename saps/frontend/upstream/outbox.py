"""Messages on their way to the upstream, and acknowledgements to it: at least once, in order, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from saps.messages import Message

MAX_FRUITLESS = 5
"""Connections that may end in a row without one acknowledgement before the first message in flight is given up."""


class Item(NamedTuple):
    """One message that waits for the upstream."""

    message: Message
    expires: float | None
    """When it is too late to send it, on the caller's clock."""


class Outbox:
    """A queue of messages for the upstream. QoS 1 stays until acknowledged, and is sent again after a reconnect.

    While the upstream is away QoS 0 is dropped, as for any client that is away. At the bounds QoS 0 gives way to
    QoS 1, then the oldest QoS 1 message to the newest. A message at which the upstream hangs up each time is given up
    after `MAX_FRUITLESS` connections, or it would block all others. Every drop is counted.
    """

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        """Bounds in messages and in payload bytes, over all that waits or is in flight."""
        self.capacity = capacity
        self.capacity_bytes = capacity_bytes
        self.connected = False
        self.dropped = 0
        self._waiting: deque[Item] = deque()
        self._sent: OrderedDict[int, Item] = OrderedDict()
        self._tickets = 0
        self._bytes = 0
        self._fruitless = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    @property
    def fill(self) -> float:
        """How full it is: 0 empty, 1 at a bound."""
        return max(len(self) / self.capacity, self._bytes / self.capacity_bytes)

    def put(self, item: Item) -> None:
        """Queue a message, or drop one."""
        size = len(item.message.payload)
        if size > self.capacity_bytes or (not item.message.qos and (not self.connected or self._full(size))):
            self.dropped += 1
            return
        while self._full(size) and self._waiting:
            self._bytes -= len(self._waiting.popleft().message.payload)
            self.dropped += 1
        if self._full(size):  # all in flight: they are nearer to their end than this one
            self.dropped += 1
            return
        self._waiting.append(item)
        self._bytes += size

    def take(self, now: float) -> tuple[int, Item] | None:
        """The next message to send and its ticket for `settled`; None if nothing waits. Expired ones are left out."""
        while self._waiting:
            item = self._waiting.popleft()
            if item.expires is not None and item.expires <= now:
                self._bytes -= len(item.message.payload)
                self.dropped += 1
                continue
            self._tickets += 1
            self._sent[self._tickets] = item
            return self._tickets, item
        return None

    def settled(self, ticket: int) -> None:
        """The upstream has the message."""
        item = self._sent.pop(ticket, None)
        if item is not None:
            self._bytes -= len(item.message.payload)
            self._fruitless = 0

    def disconnected(self) -> None:
        """What was in flight waits again, in its old place, but for QoS 0, of which nobody knows whether it arrived."""
        self.connected = False
        self._fruitless += bool(self._sent)
        if self._fruitless >= MAX_FRUITLESS:
            self._sent.popitem(last=False)
            self.dropped += 1
            self._fruitless = 0
        waiting = [*self._sent.values(), *self._waiting]
        self._sent.clear()
        self._waiting = deque(item for item in waiting if item.message.qos)
        self.dropped += len(waiting) - len(self._waiting)
        self._bytes = sum(len(item.message.payload) for item in self._waiting)

    def _full(self, size: int) -> bool:
        return len(self) >= self.capacity or self._bytes + size > self.capacity_bytes


class Receipts:
    """The acknowledgements due to the upstream, in the order of its messages (MQTT 5.0, 4.6), as the mesh confirms.

    One for each connection: packet identifiers mean nothing on another one.
    """

    def __init__(self) -> None:
        self._due: OrderedDict[int, tuple[int, bool]] = OrderedDict()
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._due)

    def received(self, packet_id: int) -> int:
        """A message of QoS 1 has come. Returns its ticket for `confirmed`."""
        self._tickets += 1
        self._due[self._tickets] = packet_id, False
        return self._tickets

    def confirmed(self, ticket: int) -> list[int]:
        """The mesh has the message. Returns the packet identifiers that may be acknowledged now, in order."""
        packet_id, _ = self._due[ticket]
        self._due[ticket] = packet_id, True
        ready = []
        while self._due:
            first = next(iter(self._due))
            packet_id, confirmed = self._due[first]
            if not confirmed:
                break
            del self._due[first]
            ready.append(packet_id)
        return ready
