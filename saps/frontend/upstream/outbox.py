"""Queues messages for the upstream and acknowledgements to it: at least once, in order, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from saps.messages import Message

MAX_FRUITLESS = 5
"""Consecutive connections without an acknowledgement after which the first message in flight is dropped."""


class Item(NamedTuple):
    """A message for the upstream."""

    message: Message
    expires: float | None
    """Expiry in seconds on the caller's clock; None for never."""


class Outbox:
    """A queue of messages for the upstream. A QoS 1 message stays until it is acknowledged, and is sent again after a
    reconnect.

    While the upstream is disconnected, QoS 0 messages are dropped, as for any client. At the bounds, a new QoS 0
    message is dropped; a new QoS 1 message replaces the oldest waiting messages. If the upstream disconnects
    `MAX_FRUITLESS` times without an acknowledgement, the first message in flight is dropped, so that it cannot block
    all others. Every drop is counted.
    """

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        """`capacity` in messages and `capacity_bytes` in bytes of payload bound all messages that wait or are in
        flight."""
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
        """The fill level of the outbox, from 0 (empty) to 1 (at a bound)."""
        return max(len(self) / self.capacity, self._bytes / self.capacity_bytes)

    def put(self, item: Item) -> None:
        """Queue a message; at the bounds, drop it or older messages."""
        size = len(item.message.payload)
        if size > self.capacity_bytes or (not item.message.qos and (not self.connected or self._full(size))):
            self.dropped += 1
            return
        while self._full(size) and self._waiting:
            self._bytes -= len(self._waiting.popleft().message.payload)
            self.dropped += 1
        if self._full(size):  # all others are in flight, so that dropping the new message costs least
            self.dropped += 1
            return
        self._waiting.append(item)
        self._bytes += size

    def take(self, now: float) -> tuple[int, Item] | None:
        """Take the next message to send. Returns its ticket for `settled` and the message, or None if nothing waits.
        Expired messages are dropped."""
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
        """Forget a message that the upstream has. `ticket`: from `take`."""
        item = self._sent.pop(ticket, None)
        if item is not None:
            self._bytes -= len(item.message.payload)
            self._fruitless = 0

    def disconnected(self) -> None:
        """Handle the loss of the connection. QoS 1 messages in flight wait again, in their old order. QoS 0 messages
        are dropped."""
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
    """The acknowledgements due to the upstream. They follow the order of the messages (MQTT 5.0, 4.6), whatever the
    order in which the mesh confirms those.

    Each connection needs its own `Receipts`, as packet identifiers are valid for one connection.
    """

    def __init__(self) -> None:
        self._due: OrderedDict[int, tuple[int, bool]] = OrderedDict()
        self._tickets = 0

    def __len__(self) -> int:
        return len(self._due)

    def received(self, packet_id: int) -> int:
        """Register a QoS 1 message that has come. Returns its ticket for `confirmed`."""
        self._tickets += 1
        self._due[self._tickets] = packet_id, False
        return self._tickets

    def confirmed(self, ticket: int) -> list[int]:
        """Note that the mesh has a message. Returns the packet identifiers that may be acknowledged now, in order."""
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
