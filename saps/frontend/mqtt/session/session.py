"""Keeps the state of a session, which outlives a client's connections (MQTT 5.0, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from saps.agents.api import remote
from saps.agents.user import PublisherAgent, Rights, SubscriberAgent
from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.codec.publish_encode import form_for
from saps.frontend.mqtt.codec.reasons import ProtocolError
from saps.frontend.mqtt.session.message_queue import MessageQueue
from saps.frontend.mqtt.session.replay import Replay
from saps.frontend.mqtt.session.window import Copy, Window
from saps.messages import Message, Subscription
from saps.routing.batch import Batch, Form
from saps.routing.hub import Hub
from saps.routing.subscriptions import Takes, Target

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.client_connection import ClientConnection
    from saps.frontend.mqtt.connection.outbound import Outbound
    from saps.frontend.mqtt.limits import Limits

FOREVER = 0xFFFFFFFF
"""The session expiry interval of a session that never expires (3.1.2.11.2)."""
HALF_DONE = -2
"""Stands for a number of subscribers: the local ones have the publication, the mesh may not, as the broker crashed."""


class LastWill:
    """The message that the broker publishes when the client is gone (3.1.2.5)."""

    __slots__ = ("delay", "due", "message")

    def __init__(self, message: Message, delay: int, due: float = 0.0) -> None:
        """Make a will. `delay`: Will Delay Interval in seconds. `due`: time to publish, on the frontend's clock, once
        the client is gone."""
        self.message = message
        self.delay = delay
        self.due = due


class Session(SubscriberAgent):
    """The subscriber agent of one MQTT client, with its unfinished QoS 1 and 2 exchanges in both directions.

    The session decides whether to send a message now, queue it or drop it. The connection's outbound half encodes and
    sends.
    """

    __slots__ = (
        "__weakref__",
        "closed",
        "connection",
        "ends_at",
        "expiry",
        "incoming",
        "outbound",
        "publisher",
        "queue",
        "replay",
        "user",
        "will",
        "window",
    )

    stored = False
    """Whether the session's messages are stored."""

    def __init__(self, hub: Hub, client_id: str, limits: Limits, budget: Budget) -> None:
        """Make a session without a connection. `budget`: the bytes that all sessions' queues share."""
        super().__init__(hub, client_id)
        self.publisher = PublisherAgent(hub, client_id, self)
        self.closed = False
        self.connection: ClientConnection | None = None
        """The client's connection; None while the client is away."""
        self.outbound: Outbound | None = None
        """The connection's outbound half; None while the client is away."""
        self.user: str | None = None
        """The session's user; None for an anonymous client."""
        self.expiry = 0
        """Session expiry interval in seconds."""
        self.ends_at = 0.0
        """Time when the session expires, on the frontend's clock, while the client is away."""
        self.incoming: dict[int, int] | None = None
        """By packet identifier of a received, unreleased QoS 2 message: the number of subscribers it reached. The
        number is -1 until the mesh has confirmed the message and PUBREC may be sent."""
        self.window = Window()
        """Messages sent and not acknowledged."""
        self.queue = MessageQueue(limits, budget)
        """QoS 1 and 2 messages not sent yet."""
        self.replay: Replay | None = None
        """Retained messages for new subscriptions that are not sent yet."""
        self.will: LastWill | None = None

    # ---- towards the client

    def deliver(self, batch: Batch, target: Target) -> None:
        """Send the publications, queue them, or drop them."""
        outbound = self.outbound
        form = form_for(batch, target)
        if not form.qos:
            if outbound is None:
                self.dropped += len(batch)
                self.lost(batch.singles, "QoS 0, and the client is away")
            else:
                self.delivered += outbound.send(batch, form)
        elif outbound is not None and self._ready(outbound, len(batch.which)):
            self._transmit(outbound, batch, form)
        else:
            for single in batch.singles:
                self.take(single, form)

    def take(self, single: Batch, form: Form) -> None:
        """Send a publication with QoS 1 or 2, or queue it."""
        if self.outbound is not None and self._ready(self.outbound, 1):
            self._transmit(self.outbound, single, form)
        else:
            self._enqueue(single, form)

    def _ready(self, outbound: Outbound, count: int) -> bool:
        """Return whether `count` more messages with QoS 1 or 2 can be sent now."""
        return (
            outbound.writable
            and self.queue.copies is None
            and len(self.window.inflight) + count <= outbound.send_maximum
        )

    @property
    def ready(self) -> bool:
        """Whether one more message with QoS 1 or 2 can be sent now."""
        return self.outbound is not None and self._ready(self.outbound, 1)

    def _transmit(self, outbound: Outbound, batch: Batch, form: Form) -> None:
        """Send a batch with QoS 1 or 2. The client's window must have room for it."""
        if not len(batch := self._fitting(outbound, batch, form)):
            return
        window = self.window
        packet_ids = window.take_ids(len(batch.which))
        self.delivered += len(packet_ids)
        if len(packet_ids) == 1:
            window.inflight[packet_ids[0]] = batch, form
        else:
            window.inflight.update(zip(packet_ids, batch.copies(form), strict=True))
        outbound.send_numbered(batch, form, packet_ids)

    def _fitting(self, outbound: Outbound, batch: Batch, form: Form) -> Batch:
        """Return the publications within the client's maximum packet size; drop the others."""
        whole = len(batch.which)
        if not outbound.maximum_packet_size or len(fitting := outbound.fitting(batch, form)) == whole:
            return batch
        self.dropped += whole - len(fitting)
        too_large = [each for each in batch.singles if not len(outbound.fitting(each, form))]
        self.lost(too_large, "it is larger than the client takes")
        if not len(fitting) and batch.share is not None:
            batch.share.settled()
        return fitting

    def _enqueue(self, single: Batch, form: Form) -> None:
        if self.closed:
            self._lose(single, "its session is over")
            return
        lost = self.queue.add(single, form)
        for oldest in lost:
            self._lose(oldest, "its queue is full")
        outbound = self.outbound
        if outbound is None:
            return
        if lost:
            outbound.too_slow()
        if not outbound.writable or self.queue.half_full:
            outbound.block_publishers()

    def _lose(self, single: Batch, why: str) -> None:
        """Drop a message, and count it."""
        self.dropped += 1
        self.lost([single], why)
        if single.share is not None:
            single.share.settled()

    def attach(self, connection: ClientConnection) -> None:
        """Attach the session to the client's new connection."""
        self.connection, self.outbound = connection, connection.outbound

    def detach(self) -> None:
        """Detach the session from the client's connection."""
        self.connection = self.outbound = self.window.repeats = None
        self.window.settle()

    def pump(self) -> None:
        """Send waiting messages, as far as the client's receive maximum and the transport allow."""
        if self.window.repeats:
            self._pump_repeats()
        if self.queue.copies is not None:
            self._pump_queue()
        if self.replay is not None:
            self.replay.pump()

    def _pump_repeats(self) -> None:
        """Retransmit messages in flight on a new connection.

        Messages that are not retransmitted yet do not count towards the client's receive maximum (3.3.4, 4.9).
        """
        window, outbound = self.window, self.outbound
        repeats = window.repeats
        if not repeats or outbound is None:
            return
        while repeats and outbound.writable and len(window.inflight) - len(repeats) < outbound.send_maximum:
            packet_id, copy = repeats.popitem()
            if not outbound.send_again(copy[0], copy[1], packet_id):
                window.forget(packet_id)
        if not repeats:
            window.repeats = None

    def _pump_queue(self) -> None:
        queue, outbound = self.queue, self.outbound
        if outbound is None:
            return
        now = self.hub.clock()
        while queue.copies and outbound.writable and len(self.window.inflight) < outbound.send_maximum:
            single, form = queue.copies[0]
            if single.expired(now):
                queue.popleft()
                self._lose(single, "it expired while it waited")
            elif len(self._fitting(outbound, single, form)):
                packet_id = self.window.take_id(())
                self.delivered += 1
                queue.send(self.window.inflight, packet_id)
                outbound.send_numbered(single, form, (packet_id,))
            else:
                queue.popleft()
        if queue.copies is None:
            outbound.caught_up()

    def replay_retained(self, retained: list[Batch], subscription: Subscription) -> None:
        """Send retained messages at the client's pace (`Replay`)."""
        if retained:
            fresh = self.replay is None
            replay = self.replay = self.replay or Replay(self)
            replay.waiting.append((iter(retained), subscription))
            replay.pump(fresh)

    def obey(self, rights: Rights | None) -> None:
        """Set the client's rights, and drop queued messages that the client may no longer read. None: all rights.

        The caller must then clear the session's routes in the hub.
        """
        self.rights = rights
        waiting = self.queue.copies
        if rights is None or waiting is None:
            return
        unreadable = [copy[0] for copy in waiting if not rights.may_read(copy[0].topic)]
        if not unreadable:
            return
        self.keep([copy for copy in waiting if rights.may_read(copy[0].topic)])
        for single in unreadable:
            self._lose(single, "the access rules do not let it be received any more")

    def keep(self, copies: Iterable[Copy]) -> None:
        """Drop the waiting messages but these, without counting them as lost."""
        self.queue.replace(copies)
        if self.queue.copies is None and self.outbound is not None:
            self.outbound.caught_up()

    def resume(self) -> None:
        """Resume the session on a new connection.

        1. Retransmit publications in flight, in their order (4.4), as far as the client's receive maximum allows.
        2. Retransmit all PUBRELs, in the order of the PUBRECs.
        3. Send the waiting messages. Both these and the remaining retransmissions follow the receive maximum.
        """
        outbound, window = self.outbound, self.window
        assert outbound is not None
        inflight = window.inflight
        window.repeats = {number: copy for number, copy in reversed(inflight.items()) if copy is not None} or None
        self._pump_repeats()
        for packet_id, copy in inflight.items():
            if copy is None:
                outbound.send_release(packet_id)
        self.pump()

    # ---- acknowledgements from the client

    def acknowledged(self, packet_id: int, qos: int = 1) -> None:
        """Handle a PUBACK, or with `qos` 2 a PUBREC with an error: the message is done.

        Raises `ProtocolError` if the message has another QoS.
        """
        window = self.window
        window.check_qos(packet_id, qos)
        if window.inflight.get(packet_id) is not None:
            window.forget(packet_id)
            self.pump()

    def received(self, packet_id: int) -> bool:
        """Handle a PUBREC; the caller must then send PUBREL. Returns False if no such message is in flight.

        The identifier moves to the end of the window, so that PUBRELs are retransmitted in the order of the PUBRECs.
        Raises `ProtocolError` if the message has another QoS.
        """
        window = self.window
        if packet_id not in window.inflight:
            return False
        window.check_qos(packet_id, 2)
        window.forget(packet_id)
        window.inflight[packet_id] = None
        return True

    def completed(self, packet_id: int) -> None:
        """Handle a PUBCOMP, which ends the exchange. Raises `ProtocolError` before PUBREC."""
        inflight = self.window.inflight
        if packet_id not in inflight:
            return
        if inflight[packet_id] is not None:
            raise ProtocolError("PUBCOMP before PUBREL")
        del inflight[packet_id]
        self.pump()

    @property
    def present(self) -> bool:
        return self.connection is not None

    # ---- on behalf of groups

    def takes(self, topic: str) -> Takes:
        if not self.may_read(topic):
            return Takes.NEVER
        if self.connection is None or self.connection.closing:
            return Takes.AWAY
        return Takes.NOW if self.ready else Takes.LATER

    def give_back(self) -> None:
        """Give unacknowledged messages of shared subscriptions to other members (4.8.2), as the client has gone."""
        back = self.window.give_back(self.closed)
        waiting = self.queue.copies or ()
        shared = [copy[0] for copy in waiting if copy[0].share is not None]
        if shared:
            self.keep([copy for copy in waiting if copy[0].share is None])
        for single in [*back, *shared]:
            self.hub.groups.redeliver(single)

    # ---- from broker to broker

    def adopt(self, inflight: dict[int, Copy | None], incoming: dict[int, int], waiting: list[Copy]) -> None:
        """Replace the session's messages by those of its snapshot; the client is away.

        `inflight` and `incoming` as in `Window.inflight` and `incoming`; `waiting` are the queued messages.
        """
        self.queue.replace(())
        self.persist()
        self.window.inflight.update(inflight.items())
        if incoming:
            self.incoming = self.incoming if self.incoming is not None else {}
            for packet_id, reached in incoming.items():
                self.incoming[packet_id] = reached
        self.queue_again(waiting)

    def queue_again(self, copies: Iterable[Copy]) -> None:
        """Replace the queue by these copies in this order, within the limits."""
        self.queue.replace(copies)
        for oldest in self.queue.trim():
            self._lose(oldest, "its queue is full")

    def hand_off(self) -> None:
        """Drop all messages, as another broker has them now. None go to other members of shared subscriptions."""
        copies = [*self.window.inflight.values(), *(self.queue.copies or ())]
        self.window.inflight = {}
        self.queue.replace(())
        self.replay = None
        for copy in copies:
            if copy is not None and copy[0].share is not None:
                copy[0].share.settled()

    def persist(self) -> None:
        """Store the session, if the broker has storage. Call this after a change of expiry, will or connection."""

    @remote
    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "connected": self.connection is not None,
            "inflight": len(self.window.inflight),
            "queued": len(self.queue.copies or ()),
        }

    def close(self) -> None:
        """End the session, and drop all of its state."""
        super().close()
        self.publisher.close()
        self.closed = True
        self.give_back()
        self.queue.replace(())
        self.replay = None
