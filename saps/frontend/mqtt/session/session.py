"""The state of a session: what outlives a client's connections (MQTT 5.0, section 4.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from saps.agents.api import remote
from saps.agents.user import PublisherAgent, Rights, SubscriberAgent
from saps.frontend.mqtt.codec.publish_encode import form_for
from saps.frontend.mqtt.codec.reasons import ProtocolError
from saps.frontend.mqtt.session.budget import ENTRY_COST, Budget
from saps.local.batch import Batch, Form
from saps.local.hub import Hub, is_reserved
from saps.local.subscriptions import Takes, Target
from saps.messages import Message, Subscription

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.connection.outbound import Outbound
    from saps.frontend.mqtt.limits import Limits
    from saps.frontend.mqtt.timers import Timer

Copy = tuple[Batch, Form]
"""A publication, as a batch of one, in the form in which the client gets it."""


HALF_DONE = -2
"""As a number of subscribers reached: those here have the publication, the mesh may not, as the broker died."""


class Session(SubscriberAgent):
    """The subscriber agent of one MQTT client, and its unfinished QoS 1 and 2 exchanges in both directions.

    It decides whether a message is sent now, waits, or is given up; the connection encodes and sends.
    """

    __slots__ = (
        "__weakref__",
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
        "outbound",
        "publisher",
        "queue",
        "queued_bytes",
        "repeats",
        "shares",
        "timers",
        "user",
        "will",
        "will_delay",
        "will_due",
    )

    stored = False
    """What it has to deliver outlives the process."""

    def __init__(self, hub: Hub, client_id: str, limits: Limits, budget: Budget) -> None:
        """`budget`: what all sessions together may keep."""
        super().__init__(hub, client_id)
        self.publisher = PublisherAgent(hub, client_id, self)
        self.limits = limits
        self.budget = budget
        self.closed = False
        self.connection: Connection | None = None
        """None while the client is away."""
        self.outbound: Outbound | None = None
        """The connection's outbound half."""
        self.user: str | None = None
        """Whose session it is; None: an anonymous client's."""
        self.expiry = 0
        """Seconds the session lives without a connection."""
        self.ends_at = 0.0
        """When it ends, while the client is away."""
        self.incoming: dict[int, int] | None = None
        """Packet identifiers of QoS 2 messages received and not released, with the number of subscribers reached;
        -1 until it is known and PUBREC may be sent."""
        self.inflight: dict[int, Copy | None] = {}
        """Messages sent and not acknowledged, in order of sending; None: PUBREL has been sent, PUBCOMP awaited."""
        self.repeats: dict[int, Copy] | None = None
        """What of it is still to be sent again on the present connection, newest first."""
        self.queue: deque[Copy] | None = None
        """QoS 1 and 2 messages not sent yet, oldest first."""
        self.queued_bytes = 0
        self.backlog: deque[tuple[Iterator[Batch], Subscription]] | None = None
        """Retained messages for new subscriptions that the client has not taken yet."""
        self.shares: dict[int, Batch] | None = None
        """By packet identifier: messages in flight on behalf of a group."""
        self._replaying = False
        """A timer goes on with the backlog."""
        self.timers: list[Timer] = []
        """While the client is away: when the session ends, and its will is due."""
        self.next_id = 1
        self.will: Message | None = None
        self.will_delay = 0
        self.will_due = 0.0

    # ---- towards the client

    def deliver(self, batch: Batch, target: Target) -> None:
        """Send the publications, or keep them for later, or give them up."""
        outbound = self.outbound
        form = form_for(batch, target)
        if not form.qos:
            if outbound is None:
                self.dropped += len(batch)
            else:
                self.delivered += outbound.send(batch, form)
        elif outbound is not None and self._ready(outbound, len(batch.which)):
            self._transmit(outbound, batch, form)
        else:
            for single in batch.singles:
                if outbound is not None and self._ready(outbound, 1):
                    self._transmit(outbound, single, form)
                else:
                    self._enqueue(single, form)

    def take(self, single: Batch, form: Form) -> None:
        """Send a publication with QoS 1 or 2 that has come by another way, or keep it for later."""
        if self.outbound is not None and self._ready(self.outbound, 1):
            self._transmit(self.outbound, single, form)
        else:
            self._enqueue(single, form)

    def _ready(self, outbound: Outbound, count: int) -> bool:
        """True if `count` more messages with QoS 1 or 2 can be sent right now."""
        return outbound.writable and not self.queue and len(self.inflight) + count <= outbound.send_maximum

    def _transmit(self, outbound: Outbound, batch: Batch, form: Form) -> None:
        """Send a batch with QoS 1 or 2 that there is room for in the client's window."""
        whole = len(batch.which)
        if outbound.maximum_packet_size and len(batch := outbound.fitting(batch, form)) < whole:
            self.dropped += whole - len(batch)
            if not len(batch):
                if batch.share is not None:
                    batch.share.settled()
                return
        packet_ids = self._take_ids(len(batch.which))
        self.delivered += len(packet_ids)
        if len(packet_ids) == 1:
            self.inflight[packet_ids[0]] = batch, form
        else:
            self.inflight.update(zip(packet_ids, batch.copies(form), strict=True))
        outbound.send_numbered(batch, form, packet_ids)
        if batch.share is not None:
            self.shares = self.shares or {}
            self.shares[packet_ids[0]] = batch

    def _take_ids(self, count: int) -> Sequence[int]:
        """So many packet identifiers that are not in use."""
        first, inflight = self.next_id, self.inflight
        if count == 1 and first not in inflight:
            self.next_id = first % 0xFFFF + 1
            return (first,)
        end = first + count
        packet_ids: Sequence[int] = range(first, end)
        if end > 0xFFFF or not inflight.keys().isdisjoint(packet_ids):
            packet_ids = list(islice(self._free_ids(), count))
            end = packet_ids[-1] % 0xFFFF + 1
        self.next_id = end
        return packet_ids

    def _free_ids(self) -> Iterator[int]:
        packet_id = self.next_id
        while True:
            if packet_id not in self.inflight:
                yield packet_id
            packet_id = packet_id % 0xFFFF + 1

    def _enqueue(self, single: Batch, form: Form) -> None:
        queue, limits, budget, outbound = self.queue, self.limits, self.budget, self.outbound
        if self.closed:
            self._lose(single)
            return
        if queue is None:
            queue = self.queue = deque()
        queue.append((single, form))
        self._keep(single.size, 1)
        fits = True
        while queue and (
            len(queue) > limits.maximum_queued
            or self.queued_bytes > limits.maximum_queued_bytes
            or budget.used > budget.limit
        ):
            oldest = queue.popleft()[0]
            self._keep(-oldest.size, -1)
            self._lose(oldest)
            fits = False
        if outbound is None:
            return
        if not fits:
            outbound.too_slow()
        if (
            not outbound.writable
            or len(queue) * 2 > limits.maximum_queued
            or self.queued_bytes * 2 > limits.maximum_queued_bytes
        ):
            outbound.block_publishers()

    def _lose(self, single: Batch) -> None:
        """The message is given up."""
        self.dropped += 1
        if single.share is not None:
            single.share.settled()

    def _keep(self, payload: int, count: int) -> None:
        """The queue has grown by so many bytes of payload and messages; negative: shrunk."""
        self.queued_bytes += payload
        self.budget.used += payload + ENTRY_COST * count

    def attach(self, connection: Connection) -> None:
        """The client is connected."""
        self.connection, self.outbound = connection, connection.outbound

    def detach(self) -> None:
        """The client's connection is gone."""
        self.connection = self.outbound = self.repeats = None

    def pump(self) -> None:
        """Send what waits, as far as the client's receive maximum and the transport allow."""
        if self.repeats:
            self._pump_repeats()
        if self.queue:
            self._pump_queue()
        if self.backlog:
            self._pump_backlog()

    def _pump_repeats(self) -> None:
        """What is in flight and not repeated yet takes up nothing of the client's receive maximum (3.3.4, 4.9)."""
        repeats, outbound = self.repeats, self.outbound
        if not repeats or outbound is None:
            return
        while repeats and outbound.writable and len(self.inflight) - len(repeats) < outbound.send_maximum:
            packet_id, copy = repeats.popitem()
            if not outbound.send_again(copy[0], copy[1], packet_id):
                self._forget_sent(packet_id)
        if not repeats:
            self.repeats = None

    def _pump_queue(self) -> None:
        queue, outbound = self.queue, self.outbound
        if not queue or outbound is None:
            return
        now = self.hub.clock()
        while queue and outbound.writable and len(self.inflight) < outbound.send_maximum:
            single, form = queue.popleft()
            self._keep(-single.size, -1)
            if single.deadline is not None and single.deadline <= now:
                self._lose(single)
            else:
                self._transmit(outbound, single, form)
        if not queue:
            self.queue = None
            outbound.caught_up()

    def replay(self, retained: list[Batch], subscription: Subscription) -> None:
        """Send retained messages at the pace of the client. What it has not taken yet waits where it is stored."""
        if retained:
            fresh = self.backlog is None
            if self.backlog is None:
                self.backlog = deque()
            self.backlog.append((iter(retained), subscription))
            self._pump_backlog(fresh)

    def _pump_backlog(self, fresh: bool = False) -> None:
        """One portion of the backlog. `fresh`: its messages are certainly those that are retained now."""
        backlog, connection, outbound, room = self.backlog, self.connection, self.outbound, self.limits.write_high_water
        if not backlog or connection is None or outbound is None:
            return
        while backlog and room > 0 and outbound.writable and not self.queue and self._ready(outbound, 1):
            retained, subscription = backlog[0]
            single = next(retained, None) if subscription.filter in self.subscriptions else None
            if single is None:
                backlog.popleft()
            elif fresh or self.still_retained(single):
                self.deliver(single, Target(self, (subscription,)))
                room -= single.size + ENTRY_COST
        if not backlog:
            self.backlog = None
        elif room <= 0 and not self._replaying:
            self._replaying = True
            connection.frontend.timers.at(self.hub.clock(), self._go_on)

    def still_retained(self, single: Batch) -> bool:
        """True if the client may have it and has not got a later one meanwhile."""
        topic = single.topic
        return self.may_read(topic) and (is_reserved(topic) or single in self.hub.retained_for(topic))

    def _go_on(self, now: float) -> None:
        self._replaying = False
        self.pump()

    def obey(self, rights: Rights | None) -> None:
        """From now on the client has these rights: what waits and may not be received any more is dropped.

        The hub's routes are for the caller to forget.
        """
        self.rights = rights
        if rights is None or not self.queue:
            return
        readable = deque(copy for copy in self.queue if rights.may_read(copy[0].topic))
        dropped = len(self.queue) - len(readable)
        self.dropped += dropped
        self._keep(sum(single.size for single, _ in readable) - self.queued_bytes, -dropped)
        self.queue = readable or None
        if not readable and self.outbound is not None:
            self.outbound.caught_up()

    def resume(self) -> None:
        """Continue on a new connection: first repeat what was in flight, in its order (4.4), then what waits. PUBRELs
        are repeated at once, publications as the client's receive maximum allows."""
        outbound = self.outbound
        assert outbound is not None
        self.repeats = {number: copy for number, copy in reversed(self.inflight.items()) if copy is not None} or None
        self._pump_repeats()
        for packet_id, copy in self.inflight.items():
            if copy is None:
                outbound.send_release(packet_id)
        self.pump()

    # ---- acknowledgements from the client

    def acknowledged(self, packet_id: int, qos: int = 1) -> None:
        """PUBACK, or with `qos` 2 PUBREC with an error: the message is done. Raises `ProtocolError`."""
        self._check_qos(packet_id, qos)
        if self.inflight.get(packet_id) is not None:
            self._forget_sent(packet_id)
            self._go_on_sending()

    def received(self, packet_id: int) -> bool:
        """PUBREC: the message is the client's; PUBREL is due. False if there is no such message. Raises
        `ProtocolError`.

        The identifier moves to the end, so that PUBRELs are repeated in the order of the PUBRECs.
        """
        if packet_id not in self.inflight:
            return False
        self._check_qos(packet_id, 2)
        self._forget_sent(packet_id)
        self.inflight[packet_id] = None
        return True

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: the exchange is over. Raises `ProtocolError`."""
        if packet_id not in self.inflight:
            return
        if self.inflight[packet_id] is not None:
            raise ProtocolError("PUBCOMP before PUBREL")
        del self.inflight[packet_id]
        self._go_on_sending()

    def _check_qos(self, packet_id: int, qos: int) -> None:
        """An acknowledgement of another quality of service leaves the message in flight (4.3.2, 4.3.3)."""
        if packet_id in self.inflight:
            copy = self.inflight[packet_id]
            sent = 2 if copy is None else copy[1].qos
            if sent != qos:
                raise ProtocolError(f"a message of QoS {sent} is acknowledged as one of QoS {qos}")

    def _forget_sent(self, packet_id: int) -> None:
        """The message is not to be sent again."""
        del self.inflight[packet_id]
        if self.repeats is not None:
            self.repeats.pop(packet_id, None)
        self._settle(packet_id)

    def _go_on_sending(self) -> None:
        if self.queue or self.backlog or self.repeats:
            self.pump()

    @property
    def present(self) -> bool:
        return self.connection is not None

    # ---- on behalf of groups

    def takes(self, topic: str) -> Takes:
        if not self.may_read(topic):
            return Takes.NEVER
        if self.connection is None or self.outbound is None or self.connection.closing:
            return Takes.AWAY
        return Takes.NOW if self._ready(self.outbound, 1) else Takes.LATER

    def give_back(self) -> None:
        """The client has gone: what it has not acknowledged on behalf of a group goes to another member (4.8.2).

        A QoS 2 message that was sent stays its own, as it may have been delivered (MQTT-4.8.2-5).
        """
        back = []
        for packet_id, single in list((self.shares or {}).items()):
            copy = self.inflight.get(packet_id)
            if copy is not None and copy[1].qos == 1:
                del self.inflight[packet_id]
                back.append(single)
            elif not self.closed:
                continue
            elif single.share is not None:
                single.share.settled()
            if self.shares is not None:
                del self.shares[packet_id]
        waiting = [entry for entry in self.queue or () if entry[0].share is not None]
        if waiting:
            self.queue = deque(entry for entry in self.queue or () if entry[0].share is None) or None
            self._keep(-sum(single.size for single, _ in waiting), -len(waiting))
            back += [single for single, _ in waiting]
        for single in back:
            self.hub.redeliver(single)

    # ---- from broker to broker

    def adopt(self, inflight: dict[int, Copy | None], incoming: dict[int, int], waiting: list[Copy]) -> None:
        """This is what the session has from now on, instead of what it has taken in so far; its client is away."""
        self._keep(-self.queued_bytes, -len(self.queue or ()))
        self.queue = None
        self.persist()
        self.inflight.update(inflight.items())
        if incoming:
            self.incoming = self.incoming if self.incoming is not None else {}
            for packet_id, reached in incoming.items():
                self.incoming[packet_id] = reached
        for single, form in waiting:
            self._enqueue(single, form)

    def queue_again(self, copies: list[Copy]) -> None:
        """This is what waits, in this order."""
        while self.queue:
            self._keep(-self.queue.popleft()[0].size, -1)
        for single, form in copies:
            self._enqueue(single, form)

    def hand_off(self) -> None:
        """Another broker has all of it: nothing remains to be delivered here, or given to other members of groups."""
        shares = [*(self.shares or {}).values(), *(single for single, _ in self.queue or ())]
        self._keep(-self.queued_bytes, -len(self.queue or ()))
        self.shares = self.queue = self.backlog = None
        for single in shares:
            if single.share is not None:
                single.share.settled()

    def _settle(self, packet_id: int) -> None:
        single = self.shares.pop(packet_id, None) if self.shares is not None else None
        if single is not None and single.share is not None:
            single.share.settled()

    def persist(self) -> None:
        """To be called when its expiry, its will or its connection has changed: where there is storage, store it."""

    @remote
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
