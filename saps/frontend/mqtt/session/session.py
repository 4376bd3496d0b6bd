"""The state of a session: what outlives a client's connections (MQTT 5.0, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from saps.agents.api import remote
from saps.agents.user import PublisherAgent, Rights, SubscriberAgent
from saps.frontend.mqtt.budget import Budget
from saps.frontend.mqtt.codec.publish_encode import form_for
from saps.frontend.mqtt.codec.reasons import ProtocolError
from saps.frontend.mqtt.session.message_queue import MessageQueue
from saps.frontend.mqtt.session.replay import Replay
from saps.frontend.mqtt.session.window import Copy, Window
from saps.local.batch import Batch, Form
from saps.local.hub import Hub
from saps.local.subscriptions import Takes, Target
from saps.messages import Message, Subscription

if TYPE_CHECKING:
    from saps.frontend.mqtt.connection.connection import Connection
    from saps.frontend.mqtt.connection.outbound import Outbound
    from saps.frontend.mqtt.limits import Limits

HALF_DONE = -2
"""As a number of subscribers reached: those here have the publication, the mesh may not, as the broker died."""


class LastWill:
    """The message that is published when the client is gone (3.1.2.5)."""

    __slots__ = ("delay", "due", "message")

    def __init__(self, message: Message, delay: int, due: float = 0.0) -> None:
        """`delay`: seconds after the client is gone; `due`: when that is, once it is gone."""
        self.message = message
        self.delay = delay
        self.due = due


class Session(SubscriberAgent):
    """The subscriber agent of one MQTT client, and its unfinished QoS 1 and 2 exchanges in both directions.

    It decides whether a message is sent now, waits, or is given up; the connection's outbound half encodes and sends.
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
    """What it has to deliver outlives the process."""

    def __init__(self, hub: Hub, client_id: str, limits: Limits, budget: Budget) -> None:
        """`budget`: what all sessions together may keep."""
        super().__init__(hub, client_id)
        self.publisher = PublisherAgent(hub, client_id, self)
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
        self.window = Window()
        """Messages sent and not acknowledged."""
        self.queue = MessageQueue(limits, budget)
        """QoS 1 and 2 messages not sent yet."""
        self.replay: Replay | None = None
        """Retained messages for new subscriptions that the client has not taken yet."""
        self.will: LastWill | None = None

    # ---- towards the client

    def deliver(self, batch: Batch, target: Target) -> None:
        """Send the publications, or keep them for later, or give them up."""
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
        """Send a publication with QoS 1 or 2, or keep it for later."""
        if self.outbound is not None and self._ready(self.outbound, 1):
            self._transmit(self.outbound, single, form)
        else:
            self._enqueue(single, form)

    def _ready(self, outbound: Outbound, count: int) -> bool:
        """True if `count` more messages with QoS 1 or 2 can be sent right now."""
        return (
            outbound.writable
            and self.queue.copies is None
            and len(self.window.inflight) + count <= outbound.send_maximum
        )

    @property
    def ready(self) -> bool:
        """One more message with QoS 1 or 2 can be sent right now."""
        return self.outbound is not None and self._ready(self.outbound, 1)

    def _transmit(self, outbound: Outbound, batch: Batch, form: Form) -> None:
        """Send a batch with QoS 1 or 2 that there is room for in the client's window."""
        whole = len(batch.which)
        all_of_it = batch
        if outbound.maximum_packet_size and len(batch := outbound.fitting(batch, form)) < whole:
            self.dropped += whole - len(batch)
            too_large = [each for each in all_of_it.singles if not len(outbound.fitting(each, form))]
            self.lost(too_large, "it is larger than the client takes")
            if not len(batch):
                if batch.share is not None:
                    batch.share.settled()
                return
        window = self.window
        packet_ids = window.take_ids(len(batch.which))
        self.delivered += len(packet_ids)
        if len(packet_ids) == 1:
            window.inflight[packet_ids[0]] = batch, form
        else:
            window.inflight.update(zip(packet_ids, batch.copies(form), strict=True))
        outbound.send_numbered(batch, form, packet_ids)

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

    def lost(self, singles: Sequence[Batch], why: str) -> None:
        """Whoever follows publications is told that the client does not get these."""
        tracer = self.hub.tracer
        if tracer is not None:
            for single in singles:
                tracer.lost(self, single, why)

    def _lose(self, single: Batch, why: str) -> None:
        """The message is given up."""
        self.dropped += 1
        self.lost([single], why)
        if single.share is not None:
            single.share.settled()

    def attach(self, connection: Connection) -> None:
        """The client is connected."""
        self.connection, self.outbound = connection, connection.outbound

    def detach(self) -> None:
        """The client's connection is gone."""
        self.connection = self.outbound = self.window.repeats = None
        self.window.settle()

    def pump(self) -> None:
        """Send what waits, as far as the client's receive maximum and the transport allow."""
        if self.window.repeats:
            self._pump_repeats()
        if self.queue.copies is not None:
            self._pump_queue()
        if self.replay is not None:
            self.replay.pump()

    def _pump_repeats(self) -> None:
        """What is in flight and not repeated yet takes up nothing of the client's receive maximum (3.3.4, 4.9)."""
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
            single, form = queue.popleft()
            if single.deadline is not None and single.deadline <= now:
                self._lose(single, "it expired while it waited")
            else:
                self._transmit(outbound, single, form)
        if queue.copies is None:
            outbound.caught_up()

    def replay_retained(self, retained: list[Batch], subscription: Subscription) -> None:
        """Send retained messages at the pace of the client. What it has not taken yet waits where it is stored."""
        if retained:
            fresh = self.replay is None
            replay = self.replay = self.replay or Replay(self)
            replay.waiting.append((iter(retained), subscription))
            replay.pump(fresh)

    def obey(self, rights: Rights | None) -> None:
        """From now on the client has these rights: what waits and may not be received any more is dropped.

        The hub's routes are for the caller to forget.
        """
        self.rights = rights
        waiting = self.queue.copies
        if rights is None or waiting is None:
            return
        unreadable = [copy[0] for copy in waiting if not rights.may_read(copy[0].topic)]
        if not unreadable:
            return
        self.queue.replace([copy for copy in waiting if rights.may_read(copy[0].topic)])
        for single in unreadable:
            self._lose(single, "the access rules do not let it be received any more")
        if self.queue.copies is None and self.outbound is not None:
            self.outbound.caught_up()

    def resume(self) -> None:
        """Continue on a new connection: first repeat what was in flight, in its order (4.4), then what waits. PUBRELs
        are repeated at once, publications as the client's receive maximum allows."""
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
        """PUBACK, or with `qos` 2 PUBREC with an error: the message is done. Raises `ProtocolError`."""
        window = self.window
        window.check_qos(packet_id, qos)
        if window.inflight.get(packet_id) is not None:
            window.forget(packet_id)
            self.pump()

    def received(self, packet_id: int) -> bool:
        """PUBREC: the message is the client's; PUBREL is due. False if there is no such message. Raises
        `ProtocolError`.

        The identifier moves to the end, so that PUBRELs are repeated in the order of the PUBRECs.
        """
        window = self.window
        if packet_id not in window.inflight:
            return False
        window.check_qos(packet_id, 2)
        window.forget(packet_id)
        window.inflight[packet_id] = None
        return True

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: the exchange is over. Raises `ProtocolError`."""
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
        """The client has gone: what it has not acknowledged on behalf of a group goes to another member (4.8.2)."""
        back = self.window.give_back(self.closed)
        waiting = self.queue.copies or ()
        shared = [copy[0] for copy in waiting if copy[0].share is not None]
        if shared:
            self.queue.replace([copy for copy in waiting if copy[0].share is None])
        for single in [*back, *shared]:
            self.hub.groups.redeliver(single)

    # ---- from broker to broker

    def adopt(self, inflight: dict[int, Copy | None], incoming: dict[int, int], waiting: list[Copy]) -> None:
        """This is what the session has from now on, instead of what it has taken in so far; its client is away."""
        self.queue.replace(())
        self.persist()
        self.window.inflight.update(inflight.items())
        if incoming:
            self.incoming = self.incoming if self.incoming is not None else {}
            for packet_id, reached in incoming.items():
                self.incoming[packet_id] = reached
        self.queue_again(waiting)

    def queue_again(self, copies: Iterable[Copy]) -> None:
        """This is what waits, in this order."""
        self.queue.replace(())
        for single, form in copies:
            self._enqueue(single, form)

    def hand_off(self) -> None:
        """Another broker has all of it: nothing remains to be delivered here, or given to other members of groups."""
        copies = [*self.window.inflight.values(), *(self.queue.copies or ())]
        self.window.inflight = {}
        self.queue.replace(())
        self.replay = None
        for copy in copies:
            if copy is not None and copy[0].share is not None:
                copy[0].share.settled()

    def persist(self) -> None:
        """To be called when its expiry, its will or its connection has changed: where there is storage, store it."""

    @remote
    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "connected": self.connection is not None,
            "inflight": len(self.window.inflight),
            "queued": len(self.queue.copies or ()),
        }

    def close(self) -> None:
        """End of the session: nothing of it remains."""
        super().close()
        self.publisher.close()
        self.closed = True
        self.give_back()
        self.queue.replace(())
        self.replay = None
