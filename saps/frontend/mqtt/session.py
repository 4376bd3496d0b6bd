"""The state of a session: what outlives a client's connections (MQTT 5.0, section 4.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from saps.agents.user import PublisherAgent, SubscriberAgent
from saps.frontend.mqtt.budget import ENTRY_COST, Budget
from saps.frontend.mqtt.outgoing import Copy, Form, Relayed, form_for, form_for_burst
from saps.hub import Burst, Hub, Publication, is_reserved
from saps.messages import Message
from saps.subscriptions import Subscription, Takes, Target

if TYPE_CHECKING:
    from saps.frontend.mqtt.auth.acl import Rights
    from saps.frontend.mqtt.connection import Connection
    from saps.frontend.mqtt.limits import Limits


HALF_DONE = -2
"""As a number of subscribers reached: those here have the publication, the mesh may not, as the broker died."""


class Session(SubscriberAgent):
    """The subscriber agent of one MQTT client, and its unfinished QoS 1 and 2 exchanges in both directions.

    It decides whether a message is sent now, waits, or is given up; the connection encodes and sends.
    """

    __slots__ = (
        "_replaying",
        "backlog",
        "budget",
        "closed",
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
        "shares",
        "user",
        "will",
        "will_delay",
        "will_due",
    )

    def __init__(self, hub: Hub, client_id: str, limits: Limits, budget: Budget) -> None:
        """`budget`: what all sessions together may keep."""
        super().__init__(hub, client_id)
        self.publisher = PublisherAgent(hub, client_id, self)
        self.limits = limits
        self.budget = budget
        self.closed = False
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
        self.incoming: dict[int, int] | None = None
        """Packet identifiers of QoS 2 messages received and not released, with the number of subscribers reached;
        -1 until it is known and PUBREC may be sent."""
        self.inflight: dict[int, Copy | None] = {}
        """Messages sent and not acknowledged, in order of sending; None: PUBREL has been sent, PUBCOMP awaited."""
        self.queue: deque[tuple[Publication, Form]] | None = None
        """QoS 1 and 2 messages not sent yet, oldest first."""
        self.queued_bytes = 0
        self.backlog: deque[tuple[Iterator[Publication], Subscription]] | None = None
        """Retained messages for new subscriptions that the client has not taken yet."""
        self.shares: dict[int, Publication] | None = None
        """By packet identifier: messages in flight on behalf of a group."""
        self._replaying = False
        """A timer goes on with the backlog."""
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
        if connection is not None and connection.wire and connection.writable:
            count, form = len(burst), form_for_burst(burst, target)
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
        if publication.share is not None:
            if copy is None:
                publication.share.settled()
            else:
                self.shares = self.shares or {}
                self.shares[packet_id] = publication

    def _enqueue(self, publication: Publication, form: Form) -> None:
        queue, limits, budget, connection = self.queue, self.limits, self.budget, self.connection
        if self.closed:
            self._lose(publication)
            return
        if queue is None:
            queue = self.queue = deque()
        queue.append((publication, form))
        self._keep(len(publication.message.payload), 1)
        fits = True
        while queue and (
            len(queue) > limits.maximum_queued
            or self.queued_bytes > limits.maximum_queued_bytes
            or budget.used > budget.limit
        ):
            oldest = queue.popleft()[0]
            self._keep(-len(oldest.message.payload), -1)
            self._lose(oldest)
            fits = False
        if connection is None:
            return
        if not fits:
            connection.too_slow()
        if (
            not connection.writable
            or len(queue) * 2 > limits.maximum_queued
            or self.queued_bytes * 2 > limits.maximum_queued_bytes
        ):
            connection.frontend.blocked.append(connection)

    def _lose(self, publication: Publication) -> None:
        """The message is given up."""
        self.dropped += 1
        if publication.share is not None:
            publication.share.settled()

    def _keep(self, payload: int, count: int) -> None:
        """The queue has grown by so many bytes of payload and messages; negative: shrunk."""
        self.queued_bytes += payload
        self.budget.used += payload + ENTRY_COST * count

    def pump(self) -> None:
        """Send what waits, as far as the client's receive maximum and the transport allow."""
        if self.queue:
            self._pump_queue()
        if self.backlog:
            self._pump_backlog()

    def _pump_queue(self) -> None:
        queue, connection = self.queue, self.connection
        if not queue or connection is None:
            return
        now = self.hub.clock()
        while queue and connection.writable and len(self.inflight) < connection.send_maximum:
            publication, form = queue.popleft()
            self._keep(-len(publication.message.payload), -1)
            if publication.expires is not None and publication.expires <= now:
                self._lose(publication)
            else:
                self._transmit(connection, publication, form)
        if not queue:
            self.queue = None
            connection.caught_up()

    def replay(self, publications: list[Publication], subscription: Subscription) -> None:
        """Send retained messages at the pace of the client. What it has not taken yet waits where it is stored."""
        if publications:
            fresh = self.backlog is None
            if self.backlog is None:
                self.backlog = deque()
            self.backlog.append((iter(publications), subscription))
            self._pump_backlog(fresh)

    def _pump_backlog(self, fresh: bool = False) -> None:
        """One portion of the backlog. `fresh`: its messages are certainly those that are retained now."""
        backlog, connection, room = self.backlog, self.connection, self.limits.write_high_water
        if not backlog or connection is None:
            return
        while backlog and room > 0 and connection.writable and not self.queue and not self._window_full(connection):
            publications, subscription = backlog[0]
            publication = next(publications, None) if subscription.filter in self.subscriptions else None
            if publication is None:
                backlog.popleft()
            elif fresh or self.still_retained(publication):
                self.deliver(publication, Target(self, (subscription,)))
                room -= len(publication.message.payload) + ENTRY_COST
        if not backlog:
            self.backlog = None
        elif room <= 0 and not self._replaying:
            self._replaying = True
            connection.frontend.timers.at(self.hub.clock(), self._go_on)

    def still_retained(self, publication: Publication) -> bool:
        """True if the client may have it and has not got a later one meanwhile."""
        topic, rights = publication.message.topic, self.rights
        if rights is not None and not rights.may_read(topic):
            return False
        return is_reserved(topic) or any(kept.message is publication.message for kept in self.hub.retained_for(topic))

    def _go_on(self, now: float) -> None:
        self._replaying = False
        self.pump()

    def _window_full(self, connection: Connection) -> bool:
        return len(self.inflight) >= connection.send_maximum

    def obey(self, rights: Rights | None) -> None:
        """From now on the client has these rights: what waits and may not be received any more is dropped.

        The hub's routes are for the caller to forget.
        """
        self.rights = rights
        if rights is None or not self.queue:
            return
        readable = deque(entry for entry in self.queue if rights.may_read(entry[0].message.topic))
        dropped = len(self.queue) - len(readable)
        self.dropped += dropped
        self._keep(sum(len(publication.message.payload) for publication, _ in readable) - self.queued_bytes, -dropped)
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
            if self.shares is not None:
                self._settle(packet_id)
            if self.queue or self.backlog:
                self.pump()

    def received(self, packet_id: int) -> bool:
        """PUBREC: the message is the client's; PUBREL is due. False if there is no such message.

        The identifier moves to the end, so that PUBRELs are repeated in the order of the PUBRECs.
        """
        if packet_id not in self.inflight:
            return False
        del self.inflight[packet_id]
        self.inflight[packet_id] = None
        if self.shares is not None:
            self._settle(packet_id)
        return True

    @property
    def present(self) -> bool:
        return self.connection is not None

    # ---- on behalf of groups

    def takes(self, topic: str) -> Takes:
        connection = self.connection
        if self.rights is not None and not self.rights.may_read(topic):
            return Takes.NEVER
        if connection is None or connection.closing:
            return Takes.AWAY
        return Takes.NOW if self._ready(connection, 1) else Takes.LATER

    def give_back(self) -> None:
        """The client has gone: what it has not acknowledged on behalf of a group goes to another member (4.8.2).

        A QoS 2 message that was sent stays its own, as it may have been delivered (MQTT-4.8.2-5).
        """
        back = []
        for packet_id, publication in list((self.shares or {}).items()):
            copy = self.inflight.get(packet_id)
            if copy is not None and copy.form.qos == 1:
                del self.inflight[packet_id]
                back.append(publication)
            elif not self.closed:
                continue
            elif publication.share is not None:
                publication.share.settled()
            if self.shares is not None:
                del self.shares[packet_id]
        waiting = [entry for entry in self.queue or () if entry[0].share is not None]
        if waiting:
            self.queue = deque(entry for entry in self.queue or () if entry[0].share is None) or None
            self._keep(-sum(len(publication.message.payload) for publication, _ in waiting), -len(waiting))
            back += [publication for publication, _ in waiting]
        for publication in back:
            self.hub.redeliver(publication)

    # ---- from broker to broker

    @property
    def blank(self) -> bool:
        """There is nothing in it that the client would miss."""
        return not (self.subscriptions or self.inflight or self.incoming or self.queue)

    def adopt(
        self, inflight: dict[int, Copy | None], incoming: dict[int, int], waiting: list[tuple[Publication, Form]]
    ) -> None:
        """This is what the session has from now on, instead of what it has taken in so far; its client is away."""
        self._keep(-self.queued_bytes, -len(self.queue or ()))
        self.queue = None
        self.persist()
        self.inflight.update(inflight.items())
        if incoming:
            self.incoming = self.incoming if self.incoming is not None else {}
            for packet_id, reached in incoming.items():
                self.incoming[packet_id] = reached
        for publication, form in waiting:
            self._enqueue(publication, form)

    def hand_off(self) -> None:
        """Another broker has all of it: nothing remains to be delivered here, or given to other members of groups."""
        shares = [*(self.shares or {}).values(), *(publication for publication, _ in self.queue or ())]
        self._keep(-self.queued_bytes, -len(self.queue or ()))
        self.shares = self.queue = self.backlog = None
        for publication in shares:
            if publication.share is not None:
                publication.share.settled()

    def _settle(self, packet_id: int) -> None:
        publication = self.shares.pop(packet_id, None) if self.shares is not None else None
        if publication is not None and publication.share is not None:
            publication.share.settled()

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: the exchange is over."""
        if packet_id in self.inflight and self.inflight[packet_id] is None:
            del self.inflight[packet_id]
            if self.queue or self.backlog:
                self.pump()

    def persist(self) -> None:
        """To be called when its expiry, its will or its connection has changed: where there is storage, store it."""

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
        self.closed = True
        self.give_back()
        self._keep(-self.queued_bytes, -len(self.queue or ()))
        self.queue = self.backlog = None
