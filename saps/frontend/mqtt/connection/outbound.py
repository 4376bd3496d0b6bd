"""The outbound half of a connection: sends packets, and keeps QoS 0 packets while the transport is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from saps.frontend.mqtt.budget import ENTRY_COST
from saps.frontend.mqtt.codec.encode import encode as encode_packet
from saps.frontend.mqtt.codec.packets import V311, Packet
from saps.frontend.mqtt.codec.publish_encode import (
    encode,
    encode_aliased,
    encode_duplicate,
    encode_numbered,
    packet_sizes,
)
from saps.frontend.mqtt.codec.wire import fixed_header
from saps.frontend.mqtt.connection.waiters import Waiters
from saps.local.batch import Batch, Form

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.frontend import Frontend
    from saps.frontend.mqtt.session.session import Session

TOO_LARGE = "it is larger than the client takes"
_NOTHING: deque[tuple[bytes, int]] = deque()


class Port(Protocol):
    """The transport of a connection, as the protocol machine uses it."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def flush(self) -> None:
        """Write the connection's `out`, and close the transport if the connection is `closing`."""


class Outbound:
    """Collects encoded packets in `out`. The driver writes them at once, at the end of the turn of its loop.

    While the transport is over its high-water mark, `writable` is False. Meanwhile QoS 0 packets wait here, and QoS 1
    and 2 messages in the session, both within `Limits.maximum_queued`.
    """

    __slots__ = (
        "_aliases",
        "_connection",
        "_frontend",
        "_held",
        "_held_bytes",
        "_held_count",
        "_too_slow",
        "alias_limit",
        "maximum_packet_size",
        "out",
        "send_maximum",
        "version",
        "waiters",
        "writable",
    )

    def __init__(self, connection: Connection, frontend: Frontend) -> None:
        self._connection = connection
        self._frontend = frontend
        self.out: list[bytes] = []
        """Packets to write."""
        self.writable = True
        self.version = V311
        self.maximum_packet_size = 0
        """Largest packet that the client accepts, in bytes; 0: any."""
        self.send_maximum = frontend.limits.send_maximum
        """Most QoS 1 and 2 messages in flight to the client."""
        self.alias_limit = 0
        """Most topic aliases towards the client."""
        self.waiters = Waiters(self, frontend)
        """The publishers that wait for this client."""
        self._aliases: dict[str, int] | None = None
        self._held: deque[tuple[bytes, int]] | None = None
        self._held_count = 0
        self._held_bytes = 0
        self._too_slow = False

    @property
    def session(self) -> Session:
        """The client's session. The client must have entered it."""
        session = self._connection.session
        assert session is not None
        return session

    def write(self, packets: bytes) -> None:
        """Add packets to the output, which is written at the end of this turn."""
        out = self.out
        if not out:
            self._frontend.turn.wake(self._connection)
        out.append(packets)

    def take(self) -> bytes:
        """Return the output as one piece, and clear it."""
        out = self.out
        packets = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if (tap := self._connection.tap) is not None:
            tap.sent(self._connection, packets)
        return packets

    def answer(self, packet: Packet) -> bool:
        """Send a packet other than PUBLISH. Returns False if it is too large for the client (3.1.2.11.4)."""
        encoded = encode_packet(packet, self.version)
        if self.maximum_packet_size and len(encoded) > self.maximum_packet_size:
            return False
        self._frontend.counts.answered += 1
        self.write(encoded)
        return True

    def release(self, gone: Connection) -> None:
        """Refer to `gone` instead of the connection, which has ended."""
        self._connection = gone
        self.waiters.forget(gone.outbound)

    # ---- publications

    def send(self, batch: Batch, form: Form) -> int:
        """Send a batch with QoS 0, hold it, or drop it. Returns the number of publications sent."""
        if self.maximum_packet_size:
            all_of_it, batch = batch, self.fitting(batch, form)
            if len(batch) < len(all_of_it):
                self.session.dropped += len(all_of_it) - len(batch)
                self.session.lost([each for each in all_of_it.singles if not len(self.fitting(each, form))], TOO_LARGE)
        count = len(batch.which)
        if not count:
            return 0
        if not self.writable:
            before = self.session.dropped
            self.hold(encode(batch, form, self.version, self._frontend.clock()), count)
            if self.session.dropped > before:
                self.session.lost(batch.singles, "QoS 0, and its connection takes no more")
            return 0
        if self.alias_limit:
            packets = b"".join([self._encode_aliased(single, form, 0) for single in batch.singles])
        else:
            packets = encode(batch, form, self.version, self._frontend.clock())
        self.write(packets)
        return count

    def send_numbered(self, batch: Batch, form: Form, packet_ids: Sequence[int]) -> None:
        """Send a batch with QoS 1 or 2. All its packets must be `fitting`."""
        if self.alias_limit:
            singles = zip(batch.singles, packet_ids, strict=True)
            self.write(b"".join([self._encode_aliased(single, form, packet_id) for single, packet_id in singles]))
        else:
            self.write(encode_numbered(batch, form, self.version, self._frontend.clock(), packet_ids))

    def send_again(self, single: Batch, form: Form, packet_id: int) -> bool:
        """Retransmit a publication with QoS 1 or 2 on a new connection. Returns False if it is too large by now."""
        if not len(self.fitting(single, form)):
            return False
        self.write(encode_duplicate(single, form, self.version, self._frontend.clock(), packet_id))
        return True

    def send_release(self, packet_id: int) -> None:
        """Send a PUBREL."""
        self._frontend.counts.answered += 1
        self.write(b"\x62\x02" + packet_id.to_bytes(2))

    def fitting(self, batch: Batch, form: Form) -> Batch:
        """Return the publications within the client's maximum packet size. The others count as sent (3.1.2.11.4)."""
        if not self.maximum_packet_size:
            return batch
        sizes = packet_sizes(batch, form, self.version, self._frontend.clock())
        return batch.select([index for index, size in enumerate(sizes) if size <= self.maximum_packet_size])

    def _encode_aliased(self, single: Batch, form: Form, packet_id: int) -> bytes:
        """Return the packet, with a topic alias for the first topics up to `alias_limit`."""
        aliases, topic, now = self._aliases, single.topic, self._frontend.clock()
        if aliases is None:
            aliases = self._aliases = {}
        alias = aliases.get(topic)
        if alias is not None:
            return encode_aliased(single, form, now, alias, True, packet_id)
        if len(aliases) < self.alias_limit:
            packet = encode_aliased(single, form, now, len(aliases) + 1, False, packet_id)
            if not self.maximum_packet_size or len(packet) <= self.maximum_packet_size:
                aliases[topic] = len(aliases) + 1
                return packet
        if packet_id:
            return encode_numbered(single, form, self.version, now, (packet_id,))
        return encode(single, form, self.version, now)

    # ---- a transport that is full

    def hold(self, packets: bytes, count: int) -> None:
        """Keep `count` QoS 0 packets until the transport drains, and drop packets above the limits."""
        session, limits, budget = self.session, self._frontend.limits, self._frontend.sessions.budget
        self._frontend.congestion.blocked.append(self)
        room = limits.maximum_queued - self._held_count
        if count > room:
            session.dropped += count - room
            packets, count = _first_packets(packets, room), room
        cost = len(packets) + ENTRY_COST
        if self._held_bytes + len(packets) > limits.maximum_queued_bytes or budget.used + cost > budget.limit:
            session.dropped += count
            return
        if not count:
            return
        budget.used += cost
        if self._held is None:
            self._held = deque()
        self._held.append((packets, count))
        self._held_count += count
        self._held_bytes += len(packets)

    def release_held(self) -> deque[tuple[bytes, int]]:
        """Return the held packets, with the number of packets in each entry, and hold them no longer."""
        held = self._held
        if held is None:
            return _NOTHING
        self._frontend.sessions.budget.used -= self._held_bytes + ENTRY_COST * len(held)
        self._held, self._held_count, self._held_bytes = None, 0, 0
        return held

    def resume(self) -> None:
        """Send the waiting messages, as the transport has drained."""
        self.writable = True
        session = self._connection.session
        if session is not None:
            for packets, count in self.release_held():
                session.delivered += count
                self.write(packets)
            session.pump()
        self.caught_up()

    @property
    def behind(self) -> bool:
        """Whether messages wait because the client's transport is full, or acknowledgements are missing."""
        session = self._connection.session
        return not self.writable or (session is not None and session.queue.copies is not None)

    def caught_up(self) -> None:
        """Let waiting publishers go on if the client has caught up. Call this when it may be no longer `behind`."""
        self.waiters.caught_up()

    def block_publishers(self) -> None:
        """Make the publisher of the current input wait for this client."""
        self._frontend.congestion.blocked.append(self)

    def too_slow(self) -> None:
        """Disconnect the client after the current input, as its queue for QoS 1 and 2 is full."""
        if not self._too_slow:
            self._too_slow = True
            self._frontend.counts.too_slow += 1
            self._frontend.timers.at(self._frontend.clock(), self._connection.give_up)


def _first_packets(packets: bytes, count: int) -> bytes:
    """Return the first `count` of several concatenated packets."""
    pos = 0
    for _ in range(count):
        bounds = fixed_header(packets, pos)
        assert bounds is not None
        pos = bounds[1]
    return packets[:pos]
