"""The state of a session: what outlives a client's connections (MQTT 5.0, section 4.1)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from saps.agents.user import PublisherAgent, SubscriberAgent
from saps.frontend.mqtt.outgoing import Copy, Form, Relayed, form_for
from saps.hub import Burst, Hub, Publication
from saps.messages import Message
from saps.subscriptions import Target

if TYPE_CHECKING:
    from saps.frontend.mqtt.auth.acl import Rights
    from saps.frontend.mqtt.connection import Connection
    from saps.frontend.mqtt.limits import Limits


class Session(SubscriberAgent):
    """The subscriber agent of one MQTT client, and its unfinished QoS 1 and 2 exchanges in both directions.

    It decides whether a message is sent now, waits, or is given up; the connection encodes and sends.
    """

    __slots__ = (
        "connection",
        "ends_at",
        "expiry",
        "incoming",
        "inflight",
        "limits",
        "next_id",
        "publisher",
        "queue",
        "queued_bytes",
        "rights",
        "user",
        "will",
        "will_delay",
        "will_due",
    )

    def __init__(self, hub: Hub, client_id: str, limits: Limits) -> None:
        super().__init__(hub, client_id)
        self.publisher = PublisherAgent(hub, client_id, self)
        self.limits = limits
        self.connection: Connection | None = None
        """None while the client is away."""
        self.user: str | None = None
        """Whose session it is; None: an anonymous client's."""
        self.rights: Rights | None = None
        """What the client may publish and receive; None: everything."""
        self.expiry = 0
        """Seconds the session lives without a connection."""
        self.ends_at = 0.0
        """When it ends, while the client is away."""
        self.incoming: dict[int, bool] | None = None
        """Packet identifiers of QoS 2 messages received and not released; True once PUBREC may be sent."""
        self.inflight: dict[int, Copy | None] = {}
        """Messages sent and not acknowledged, in order of sending; None: PUBREL has been sent, PUBCOMP awaited."""
        self.queue: deque[tuple[Publication, Form]] | None = None
        """QoS 1 and 2 messages not sent yet, oldest first."""
        self.queued_bytes = 0
        self.next_id = 1
        self.will: Message | None = None
        self.will_delay = 0
        self.will_due = 0.0

    # ---- towards the client

    def relay(self, packets: bytes, count: int, at_once: bool = False) -> None:
        """`count` QoS 0 packets, already encoded as this client takes them."""
        connection = self.connection
        if connection is None:
            self.dropped += count
        elif connection.writable:
            out = connection.out
            if out:
                out.append(packets)
            elif at_once:
                connection.port.write(packets)
            else:
                connection.frontend.wake(connection)
                out.append(packets)
            self.delivered += count
        else:
            connection.hold(packets, count)

    def relay_numbered(self, packet: Relayed) -> None:
        """A QoS 1 packet, already encoded as this client takes it but for its packet identifier."""
        connection, packet_id, inflight = self.connection, self.next_id, self.inflight
        if (
            connection is None
            or connection.out
            or not connection.writable
            or self.queue
            or packet_id in inflight
            or len(inflight) >= connection.send_maximum
        ):
            self._deliver_numbered(packet.publication, packet.form)
            return
        connection.port.write(packet.with_id(packet_id))
        inflight[packet_id] = packet
        self.next_id = packet_id + 1 if packet_id < 0xFFFF else 1
        self.delivered += 1

    def deliver(self, publication: Publication, target: Target) -> None:
        """Send the message, or keep it for later, or give it up."""
        connection = self.connection
        form = form_for(publication, target)
        if not form.qos:
            if connection is None:
                self.dropped += 1
            else:
                connection.send(publication, form)
        else:
            self._deliver_numbered(publication, form)

    def _deliver_numbered(self, publication: Publication, form: Form) -> None:
        connection = self.connection
        if connection is not None and self._ready(connection, 1):
            self._transmit(connection, publication, form)
        else:
            self._enqueue(publication, form)

    def deliver_burst(self, burst: Burst, target: Target) -> None:
        """As `deliver` for each publication, but in one piece where nothing stands against it."""
        connection = self.connection
        count = len(burst.publications)
        if connection is not None and connection.wire and connection.writable:
            form = form_for(burst.publications[0], target)
            if not form.qos:
                self.delivered += count
                connection.send_burst(burst, form)
                return
            first = self.next_id
            inflight = self.inflight
            numbers = range(first, first + count)
            if self._ready(connection, count) and numbers.stop <= 0xFFFF and inflight.keys().isdisjoint(numbers):
                self.next_id = numbers.stop
                self.delivered += count
                inflight.update(zip(numbers, connection.send_numbered_burst(burst, form, first), strict=True))
                return
        super().deliver_burst(burst, target)

    def _ready(self, connection: Connection, count: int) -> bool:
        """True if `count` more messages with QoS 1 or 2 can be sent right now."""
        return connection.writable and not self.queue and len(self.inflight) + count <= connection.send_maximum

    def _transmit(self, connection: Connection, publication: Publication, form: Form) -> None:
        packet_id = self.next_id
        inflight = self.inflight
        while packet_id in inflight:
            packet_id = packet_id + 1 if packet_id < 0xFFFF else 1
        copy = connection.send_with_id(publication, form, packet_id)
        if copy is None:
            self.dropped += 1
        else:
            self.delivered += 1
            inflight[packet_id] = copy
            self.next_id = packet_id + 1 if packet_id < 0xFFFF else 1

    def _enqueue(self, publication: Publication, form: Form) -> None:
        queue, limits = self.queue, self.limits
        if queue is None:
            queue = self.queue = deque()
        queue.append((publication, form))
        self.queued_bytes += len(publication.message.payload)
        while len(queue) > limits.maximum_queued or self.queued_bytes > limits.maximum_queued_bytes:
            self.queued_bytes -= len(queue.popleft()[0].message.payload)
            self.dropped += 1
        connection = self.connection
        if connection is not None and (not connection.writable or len(queue) * 2 > limits.maximum_queued):
            connection.frontend.blocked.append(connection)

    def pump(self) -> None:
        """Send what waits, as far as the client's receive maximum and the transport allow."""
        queue, connection = self.queue, self.connection
        if not queue or connection is None:
            return
        now = self.hub.clock()
        while queue and connection.writable and len(self.inflight) < connection.send_maximum:
            publication, form = queue.popleft()
            self.queued_bytes -= len(publication.message.payload)
            if publication.expires is not None and publication.expires <= now:
                self.dropped += 1
            else:
                self._transmit(connection, publication, form)
        if not queue:
            self.queue = None
            connection.caught_up()

    def obey(self, rights: Rights | None) -> None:
        """From now on the client has these rights: what waits and may not be received any more is dropped.

        The hub's routes are for the caller to forget.
        """
        self.rights = rights
        if rights is None or not self.queue:
            return
        readable = deque(entry for entry in self.queue if rights.may_read(entry[0].message.topic))
        self.dropped += len(self.queue) - len(readable)
        self.queued_bytes = sum(len(publication.message.payload) for publication, _ in readable)
        self.queue = readable or None
        if not readable and self.connection is not None:
            self.connection.caught_up()

    def resume(self, connection: Connection) -> None:
        """Continue on a new connection: first repeat what was in flight, in its order (4.4), then what waits."""
        for packet_id, copy in list(self.inflight.items()):
            if copy is None:
                connection.send_release(packet_id)
            elif connection.send_with_id(copy.publication, copy.form, packet_id, duplicate=True) is None:
                del self.inflight[packet_id]
        self.pump()

    # ---- acknowledgements from the client

    def acknowledged(self, packet_id: int) -> None:
        """PUBACK, or PUBREC with an error: the message is done."""
        if self.inflight.get(packet_id) is not None:
            del self.inflight[packet_id]
            if self.queue:
                self.pump()

    def received(self, packet_id: int) -> bool:
        """PUBREC: the message is the client's; PUBREL is due. False if there is no such message.

        The identifier moves to the end, so that PUBRELs are repeated in the order of the PUBRECs.
        """
        if packet_id not in self.inflight:
            return False
        del self.inflight[packet_id]
        self.inflight[packet_id] = None
        return True

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: the exchange is over."""
        if packet_id in self.inflight and self.inflight[packet_id] is None:
            del self.inflight[packet_id]
            if self.queue:
                self.pump()

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "connected": self.connection is not None,
            "inflight": len(self.inflight),
            "queued": len(self.queue or ()),
        }

    def close(self) -> None:
        """End of the session: nothing of it remains."""
        super().close()
        self.publisher.close()
