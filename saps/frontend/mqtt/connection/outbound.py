"""The outbound half of a connection: sends packets, and keeps QoS 0 packets while the transport is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from saps.agents.user import SubscriberAgent
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
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.codec.wire import fixed_header
from saps.frontend.mqtt.common import Common
from saps.frontend.mqtt.connection.flow_control import Waiters
from saps.frontend.mqtt.connection.output import Output
from saps.routing.batch import Batch, Form

TOO_LARGE = "it is larger than the client takes"
_NOTHING: deque[tuple[bytes, int]] = deque()


class Outbound:
    """Encodes packets for one client, and adds them to its output.

    While the transport is over its high-water mark, `writable` is False. Meanwhile QoS 0 packets wait here, and QoS 1
    and 2 messages in the session, both within `Limits.maximum_queued`.
    """

    __slots__ = (
        "_aliases",
        "_held",
        "_held_bytes",
        "_held_count",
        "_too_slow",
        "agent",
        "alias_limit",
        "common",
        "maximum_packet_size",
        "output",
        "send_maximum",
        "version",
        "waiters",
        "writable",
    )

    def __init__(self, common: Common, output: Output) -> None:
        self.common = common
        self.output = output
        self.agent: SubscriberAgent | None = None
        """The client's subscriber agent; None before the client has entered its session."""
        self.writable = True
        self.version = V311
        self.maximum_packet_size = 0
        """Largest packet that the client accepts, in bytes; 0: any."""
        self.send_maximum = common.limits.send_maximum
        """Most QoS 1 and 2 messages in flight to the client."""
        self.alias_limit = 0
        """Most topic aliases towards the client."""
        self.waiters = Waiters(self, common)
        """The publishers that wait for this client."""
        self._aliases: dict[str, int] | None = None
        self._held: deque[tuple[bytes, int]] | None = None
        self._held_count = 0
        self._held_bytes = 0
        self._too_slow = False

    def release(self) -> None:
        """Forget the client's session and its transport, which is lost. Nobody waits for the client any more."""
        self.output.release()
        self.common.hub.behind.discard(self)
        self.agent, self.writable = None, True

    def answer(self, packet: Packet) -> bool:
        """Send a packet other than PUBLISH. Returns False if it is too large for the client (3.1.2.11.4)."""
        encoded = encode_packet(packet, self.version)
        if self.maximum_packet_size and len(encoded) > self.maximum_packet_size:
            return False
        self.common.counts.answered += 1
        self.output.write(encoded)
        return True

    # ---- publications

    def send(self, batch: Batch, form: Form) -> int:
        """Send a batch with QoS 0, hold it, or drop it. Returns the number of publications sent."""
        agent = self.agent
        assert agent is not None
        if self.maximum_packet_size:
            all_of_it, batch = batch, self.fitting(batch, form)
            if len(batch) < len(all_of_it):
                agent.dropped += len(all_of_it) - len(batch)
                agent.lost([each for each in all_of_it.singles if not len(self.fitting(each, form))], TOO_LARGE)
        count = len(batch.which)
        if not count:
            return 0
        if not self.writable:
            before = agent.dropped
            self.hold(encode(batch, form, self.version, self.common.clock()), count)
            if agent.dropped > before:
                agent.lost(batch.singles, "QoS 0, and its connection takes no more")
            return 0
        if self.alias_limit:
            packets = b"".join([self._encode_aliased(single, form, 0) for single in batch.singles])
        else:
            packets = encode(batch, form, self.version, self.common.clock())
        self.output.write(packets)
        return count

    def send_numbered(self, batch: Batch, form: Form, packet_ids: Sequence[int]) -> None:
        """Send a batch with QoS 1 or 2. All its packets must be `fitting`."""
        if self.alias_limit:
            singles = zip(batch.singles, packet_ids, strict=True)
            self.output.write(
                b"".join([self._encode_aliased(single, form, packet_id) for single, packet_id in singles])
            )
        else:
            self.output.write(encode_numbered(batch, form, self.version, self.common.clock(), packet_ids))

    def send_again(self, single: Batch, form: Form, packet_id: int) -> bool:
        """Retransmit a publication with QoS 1 or 2 on a new connection. Returns False if it is too large by now."""
        if not len(self.fitting(single, form)):
            return False
        self.output.write(encode_duplicate(single, form, self.version, self.common.clock(), packet_id))
        return True

    def send_release(self, packet_id: int) -> None:
        """Send a PUBREL."""
        self.common.counts.answered += 1
        self.output.write(b"\x62\x02" + packet_id.to_bytes(2))

    def fitting(self, batch: Batch, form: Form) -> Batch:
        """Return the publications within the client's maximum packet size. The others count as sent (3.1.2.11.4)."""
        if not self.maximum_packet_size:
            return batch
        sizes = packet_sizes(batch, form, self.version, self.common.clock())
        return batch.select([index for index, size in enumerate(sizes) if size <= self.maximum_packet_size])

    def _encode_aliased(self, single: Batch, form: Form, packet_id: int) -> bytes:
        """Return the packet, with a topic alias for the first topics up to `alias_limit`."""
        aliases, topic, now = self._aliases, single.topic, self.common.clock()
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
        agent, limits, budget = self.agent, self.common.limits, self.common.queued
        assert agent is not None
        self.common.congestion.blocked[self] = None
        room = limits.maximum_queued - self._held_count
        if count > room:
            agent.dropped += count - room
            packets, count = _first_packets(packets, room), room
        cost = len(packets) + ENTRY_COST
        if self._held_bytes + len(packets) > limits.maximum_queued_bytes or budget.used + cost > budget.limit:
            agent.dropped += count
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
        self.common.queued.used -= self._held_bytes + ENTRY_COST * len(held)
        self._held, self._held_count, self._held_bytes = None, 0, 0
        return held

    def resume(self) -> None:
        """Send the held packets, as the transport has drained."""
        self.writable = True
        if self.agent is not None:
            for packets, count in self.release_held():
                self.agent.delivered += count
                self.output.write(packets)

    @property
    def behind(self) -> bool:
        """Whether messages wait because the client's transport is full, or acknowledgements are missing."""
        queue = self.output.queue
        return not self.writable or (queue is not None and queue.copies is not None)

    def caught_up(self) -> None:
        """Let waiting publishers go on if the client has caught up. Call this when it may be no longer `behind`."""
        self.waiters.caught_up()
        if not self.behind:
            self.common.hub.behind.discard(self)

    def block_publishers(self) -> None:
        """Make the publisher of the current input wait for this client."""
        self.common.congestion.blocked[self] = None
        self.common.hub.behind.add(self)

    def too_slow(self) -> None:
        """Disconnect the client after the current input, as its queue for QoS 1 and 2 is full."""
        if not self._too_slow:
            self._too_slow = True
            self.common.counts.too_slow += 1
            self.common.timers.at(self.common.clock(), self._give_up)

    def _give_up(self, now: float) -> None:
        self.output.owner.close(Reason.QUOTA_EXCEEDED, "too slow: its queue is full")


def _first_packets(packets: bytes, count: int) -> bytes:
    """Return the first `count` of several concatenated packets."""
    pos = 0
    for _ in range(count):
        bounds = fixed_header(packets, pos)
        assert bounds is not None
        pos = bounds[1]
    return packets[:pos]
