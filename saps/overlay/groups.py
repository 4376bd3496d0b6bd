"""Shared subscriptions over the mesh: each message to one member of each group (MQTT 5.0, section 4.8.2).

A group with members at the publisher's broker is served there. Else a broker that has members is handed the message
(`GroupDelivery`): of the same cluster if there is one, the one with the fewest so far among equals. It takes the
message if a member is ready, else the next broker is asked. With QoS 1 and 2 the message stays here, too, until the
member has acknowledged it (`Settled`): if the broker dies before, another one is handed a message of QoS 1. One of QoS
2 is not: nobody knows whether it was delivered (MQTT-4.8.2-5).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from saps.messages import Message
from saps.overlay.frames.calls import Collect, Interest
from saps.overlay.frames.delivery import GroupDelivery, Handed, Settled
from saps.overlay.port import Handlers, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import BrokerRef, sharers

RESEND = 0.2
"""Seconds between two looks whether a broker whose link broke can be reached again."""
REMEMBERED = 16_384
"""Messages taken of late that are remembered, so that one handed in twice is not delivered twice."""
ATTEMPTS = 3
"""Range calls for the members of a group, for a message of QoS 0, when it is not known who has some."""

Taken = Callable[[bool], None]


class Members(Protocol):
    """The members of groups at this broker (`saps.local.hub.Hub`)."""

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Give the message to one member. `forced`: also to one that is away. False if there is none. `settled` runs
        when the member has it."""


class _Handing:
    """A message of a group that another broker shall take, or has taken and not settled."""

    __slots__ = ("brokers", "done", "forced", "message", "settled", "to", "topic_filter")

    def __init__(
        self, topic_filter: str, message: Message, brokers: list[BrokerRef], done: Taken, settled: Callable[[], None]
    ) -> None:
        self.topic_filter = topic_filter
        self.message = message
        self.brokers = brokers
        """Whom to ask yet."""
        self.done: Taken | None = done
        self.settled = settled
        self.to: BrokerRef | None = None
        self.forced = False
        """A member that is away takes it, too."""


class Sharing:
    """The messages one broker hands to members elsewhere, and takes for its own."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        members: Members,
        permitted: Callable[[str, Iterable[BrokerRef]], list[BrokerRef]] = lambda topic, brokers: list(brokers),
    ) -> None:
        """`permitted`: those of the brokers that may get a message to the topic."""
        self._port = port
        self._calls = calls
        self._members = members
        self._permitted = permitted
        self._serial = 0
        self._searching = 0
        """Messages for which it is being found out who has members."""
        self._handing: dict[int, _Handing] = {}
        self._counts: dict[str, Counter[str]] = {}
        """By group: messages handed to each broker."""
        self._taken: OrderedDict[tuple[BrokerRef, int], tuple[bool, bool]] = OrderedDict()
        """What came of the last messages handed to this broker: taken?, settled?"""

    def hand(
        self,
        topic_filter: str,
        message: Message,
        brokers: Iterable[BrokerRef] | None,
        done: Taken,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """Have one of the brokers that have members of the group take the message; None: whoever has some. `done` is
        told whether one has, `settled` runs when its member has it (with QoS 0: as soon as it is taken)."""
        if brokers is not None:
            self._begin(topic_filter, message, brokers, done, settled)
            return

        def found(outcome: Outcome) -> None:
            self._searching -= 1
            others = {r.broker.name: r.broker for r in outcome.results if isinstance(r, Interest)}
            others.pop(self._port.me.name, None)
            self._begin(topic_filter, message, others.values(), done, settled)

        self._searching += 1
        self._calls.call(sharers(topic_filter), Collect(), found, None if message.qos else ATTEMPTS)

    @property
    def settled(self) -> bool:
        """True if no message waits to be taken by another broker."""
        return not self._searching and all(handing.done is None for handing in self._handing.values())

    def _begin(
        self,
        topic_filter: str,
        message: Message,
        brokers: Iterable[BrokerRef],
        done: Taken,
        settled: Callable[[], None],
    ) -> None:
        brokers = self._permitted(message.topic, brokers)
        handing = _Handing(topic_filter, message, self._in_turn(topic_filter, brokers), done, settled)
        self._next(handing)

    def _in_turn(self, topic_filter: str, brokers: Iterable[BrokerRef]) -> list[BrokerRef]:
        """Whom to ask first: those of this cluster, and among equals the one that has had the fewest."""
        counts = self._counts.setdefault(topic_filter, Counter())
        present = [broker for broker in brokers if not self._port.lost(broker)]
        least = min((counts[broker.name] for broker in present if broker.name in counts), default=0)
        for broker in present:  # one that is new, or comes back, starts with the others
            counts[broker.name] = max(counts[broker.name], least)
        here = self._port.me.cluster
        return sorted(present, key=lambda broker: (broker.cluster != here, counts[broker.name], broker.name))

    def _next(self, handing: _Handing) -> None:
        """Ask the next broker."""
        for broker in handing.brokers:
            if self._port.reachable(broker):
                handing.brokers.remove(broker)
                self._ask(handing, broker)
                return
        handing.brokers = [broker for broker in handing.brokers if not self._port.lost(broker)]
        if handing.brokers:  # suspected, or their links have just broken
            self._port.after(RESEND, lambda: self._next(handing))
        elif handing.done is not None:
            handing.done(False)

    def _ask(self, handing: _Handing, broker: BrokerRef) -> None:
        self._serial += 1
        serial = self._serial
        handing.to = broker
        self._handing[serial] = handing
        self._counts.setdefault(handing.topic_filter, Counter())[broker.name] += 1
        self._send(serial, handing, broker)

    def _send(self, serial: int, handing: _Handing, broker: BrokerRef) -> None:
        message = handing.message
        self._port.send(
            broker,
            GroupDelivery(
                serial,
                handing.topic_filter,
                message.topic,
                message.payload,
                message.qos,
                handing.forced,
                message.properties,
            ),
        )

    # --- frames ---------------------------------------------------------------------------------------------------

    @property
    def handlers(self) -> Handlers:
        return {GroupDelivery: self._on_group_delivery, Handed: self._on_handed, Settled: self._on_settled}

    def _on_settled(self, sender: BrokerRef, frame: Settled) -> None:
        handing = self._handing.get(frame.serial)
        if handing is not None and handing.to == sender:
            del self._handing[frame.serial]
            if handing.done is not None:
                handing.done(True)
            handing.settled()

    def _on_group_delivery(self, sender: BrokerRef, frame: GroupDelivery) -> None:
        name = sender, frame.serial
        known = self._taken.get(name)
        if known is None:
            self._taken[name] = False, False
            if len(self._taken) > REMEMBERED:
                self._taken.popitem(last=False)

            def settled() -> None:
                self._taken[name] = True, True
                self._port.send(sender, Settled(frame.serial))

            message = Message(frame.topic, frame.payload, frame.qos, False, frame.properties)
            taken = self._members.take(frame.topic_filter, message, frame.forced, settled)
            known = self._taken[name] = taken, self._taken.get(name, (False, False))[1]
        self._port.send(sender, Settled(frame.serial) if known[1] else Handed(frame.serial, known[0]))

    def _on_handed(self, sender: BrokerRef, frame: Handed) -> None:
        handing = self._handing.get(frame.serial)
        if handing is None or handing.done is None or handing.to != sender:
            return
        if not frame.taken:
            del self._handing[frame.serial]
            self._next(handing)
            return
        done, handing.done = handing.done, None
        done(True)
        if not handing.message.qos:
            del self._handing[frame.serial]
            handing.settled()

    # --- links and brokers that fail -------------------------------------------------------------------------------

    def link_down(self, peer: BrokerRef) -> None:
        """What was sent to `peer`, or what it has sent, may be lost: send it once more, it knows what it has."""
        if any(handing.to == peer for handing in self._handing.values()):
            self._port.after(RESEND, lambda: self._resend(peer))

    def _resend(self, peer: BrokerRef) -> None:
        if self._port.reachable(peer):
            for serial, handing in list(self._handing.items()):
                if handing.to == peer:
                    self._send(serial, handing, peer)
        elif not self._port.lost(peer):
            self.link_down(peer)

    def session_started(self, peer: BrokerRef) -> None:
        """A new session of the link from `peer`: what it sent on the one before may be lost."""
        self.link_down(peer)

    def awaited(self) -> dict[str, BrokerRef]:
        """The brokers that something is expected of: their failure must be noticed."""
        return {handing.to.name: handing.to for handing in self._handing.values() if handing.to is not None}

    def forget(self, broker: BrokerRef) -> None:
        """A broker died, or has left: what it took and has not settled goes to others."""
        for serial, handing in list(self._handing.items()):
            if handing.to != broker:
                continue
            del self._handing[serial]
            if handing.done is not None:
                self._next(handing)
            elif handing.message.qos == 1:
                self.redeliver(handing.topic_filter, handing.message, handing.settled)
            else:
                handing.settled()

    def redeliver(
        self,
        topic_filter: str,
        message: Message,
        settled: Callable[[], None],
        brokers: Iterable[BrokerRef] | None = None,
    ) -> None:
        """The member that had a message has gone: give it to another one, here or elsewhere (at `brokers`, if it is
        known who has some). If none is ready a member that is away keeps it; if there is none it is lost."""
        if self._members.take(topic_filter, message, False, settled):
            return

        def asked(taken: bool) -> None:
            if not taken and not self._members.take(topic_filter, message, True, settled):
                settled()

        self.hand(topic_filter, message, brokers, asked, settled)

    # --- own publications --------------------------------------------------------------------------------------------

    def publish(self, groups: dict[str, list[BrokerRef]], message: Message, done: Callable[[int], None] | None) -> None:
        """Hand a publication to these groups, each with the brokers that have members. `done` gets the number of those
        that have taken it, when all have answered."""
        missing, taken_by = len(groups), 0
        if not groups and done is not None:
            done(0)

        def answered(taken: bool) -> None:
            nonlocal missing, taken_by
            missing -= 1
            taken_by += taken
            if missing == 0 and done is not None:
                done(taken_by)

        for topic_filter, brokers in groups.items():
            self._publish_to(topic_filter, brokers, message, answered)

    def _publish_to(self, topic_filter: str, brokers: list[BrokerRef], message: Message, done: Taken) -> None:
        def asked(taken: bool) -> None:
            if taken or not message.qos or not brokers:
                done(taken)
            else:  # all members are away: the first of the brokers keeps it
                self._force(topic_filter, message, brokers, done)

        self.hand(topic_filter, message, brokers, asked)

    def _force(self, topic_filter: str, message: Message, brokers: list[BrokerRef], done: Taken) -> None:
        def asked(taken: bool) -> None:
            if taken:
                done(True)
            else:  # they have died
                self.hand(topic_filter, message, None, done)

        handing = _Handing(topic_filter, message, self._in_turn(topic_filter, brokers), asked, lambda: None)
        handing.forced = True
        self._next(handing)
