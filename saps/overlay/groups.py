"""Shared subscriptions over the mesh: delivers each message to one member of each group (MQTT 5.0, section 4.8.2).

1. A group with members at the publisher's broker is served there.
2. Otherwise the message is handed to a broker with members (`GroupDelivery`). Brokers of the same cluster come first,
   and among equals the one that was handed the fewest messages.
3. That broker takes the message if a member is ready. If none is, the next broker is asked.
4. With QoS 1 and 2 the message is kept here until the member has acknowledged it (`Settled`). If the broker dies before
   that, a message of QoS 1 is handed to another one. A message of QoS 2 is not, as it may have been delivered
   (MQTT-4.8.2-5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from saps.messages import Message
from saps.overlay.frames.calls import Collect, Interest
from saps.overlay.frames.delivery import GroupDelivery, Handed, Settled
from saps.overlay.port import Handlers, Port
from saps.overlay.rendezvous.range_calls import Outcome, RangeCalls
from saps.overlay.ring.keys import BrokerRef, sharers

RESEND = 0.2
"""Interval between two checks whether a broker is reachable again after its link broke, in seconds."""
REMEMBERED = 16_384
"""Most recent deliveries remembered after they are settled or refused, so that a repeated `GroupDelivery` is not
delivered twice."""
GROUPS = 4096
"""Most groups whose deliveries are counted; the one that was handed a message longest ago is counted anew."""
ATTEMPTS = 3
"""Attempts of the range call that searches for members of a group, for a message of QoS 0."""

Taken = Callable[[bool], None]


class Members(Protocol):
    """The members of groups at this broker (`saps.routing.hub.Hub`)."""

    def take(self, topic_filter: str, message: Message, forced: bool, settled: Callable[[], None]) -> bool:
        """Give the message to one member of the group. Returns False if none takes it. With `forced`, a member that is
        not connected takes it, too. `settled` runs when the member has acknowledged the message."""


class _Handing:
    """A message that another broker is asked to take, or has taken and not settled."""

    __slots__ = ("brokers", "done", "forced", "message", "settled", "to", "topic_filter")

    def __init__(
        self, topic_filter: str, message: Message, brokers: list[BrokerRef], done: Taken, settled: Callable[[], None]
    ) -> None:
        self.topic_filter = topic_filter
        self.message = message
        self.brokers = brokers
        """Brokers that can still be asked, the best first."""
        self.done: Taken | None = done
        self.settled = settled
        self.to: BrokerRef | None = None
        self.forced = False
        """Whether a member that is not connected may take the message."""


class Sharing:
    """The messages that one broker hands to members at other brokers, and takes for its own members."""

    def __init__(
        self,
        port: Port,
        calls: RangeCalls,
        members: Members,
        permitted: Callable[[str, Iterable[BrokerRef]], list[BrokerRef]] = lambda topic, brokers: list(brokers),
    ) -> None:
        """`permitted` returns the brokers among the given ones that may get a message to the topic."""
        self._port = port
        self._calls = calls
        self._members = members
        self._permitted = permitted
        self._serial = 0
        self._searching = 0
        """Number of messages that wait for a search for members."""
        self._handing: dict[int, _Handing] = {}
        self._counts: dict[str, Counter[str]] = {}
        """Messages handed to each broker, by group; the group of the last message is last."""
        self._open: set[tuple[BrokerRef, int]] = set()
        """The messages that members here have taken and not settled yet, by sender and serial."""
        self._closed: dict[tuple[BrokerRef, int], bool] = {}
        """The last messages handed to this broker that are settled (True) or were refused (False)."""

    def hand(
        self,
        topic_filter: str,
        message: Message,
        brokers: Iterable[BrokerRef] | None,
        done: Taken,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """Hand a message to one broker with members of the group.

        `brokers` are the brokers with members; None searches for them. `done` is called with whether a broker took the
        message. `settled` runs when the member has acknowledged it (with QoS 0: as soon as it is taken).
        """
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
        """Whether no message waits to be taken by another broker."""
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
        """Return the brokers that are not lost, in the order to ask: those of this cluster first, then by the number of
        messages that they were handed."""
        counts = self._counts[topic_filter] = self._counts.pop(topic_filter, Counter())
        if len(self._counts) > GROUPS:
            del self._counts[next(iter(self._counts))]
        present = [broker for broker in brokers if not self._port.lost(broker)]
        least = min((counts[broker.name] for broker in present if broker.name in counts), default=0)
        for broker in present:  # a new or returned broker starts level with the others, so it is not flooded
            counts[broker.name] = max(counts[broker.name], least)
        here = self._port.me.cluster
        return sorted(present, key=lambda broker: (broker.cluster != here, counts[broker.name], broker.name))

    def _next(self, handing: _Handing) -> None:
        """Ask the next reachable broker; if none is left, report that nobody took the message."""
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
        if (counts := self._counts.get(handing.topic_filter)) is not None:
            counts[broker.name] += 1
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
        if name in self._open:
            self._port.send(sender, Handed(frame.serial, True))
            return
        if (known := self._closed.get(name)) is not None:
            self._answer(name, known)
            return

        def settled() -> None:
            if name in self._open:
                self._close(name, True)

        self._open.add(name)
        message = Message(frame.topic, frame.payload, frame.qos, False, frame.properties)
        if not self._members.take(frame.topic_filter, message, frame.forced, settled):
            self._close(name, False)
        elif name in self._open:
            self._port.send(sender, Handed(frame.serial, True))

    def _close(self, name: tuple[BrokerRef, int], taken: bool) -> None:
        """Note that a message handed to this broker is settled, or refused, and tell the sender."""
        self._open.discard(name)
        self._closed[name] = taken
        if len(self._closed) > REMEMBERED:
            del self._closed[next(iter(self._closed))]
        self._answer(name, taken)

    def _answer(self, name: tuple[BrokerRef, int], taken: bool) -> None:
        sender, serial = name
        self._port.send(sender, Settled(serial) if taken else Handed(serial, False))

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
        """Handle the loss of a link to `peer`: frames in either direction may be lost. Sends all open deliveries to it
        again; the peer recognizes repeats."""
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
        """Handle a new link session from `peer`: its answers on the previous session may be lost."""
        self.link_down(peer)

    def awaited(self) -> dict[str, BrokerRef]:
        """Return the brokers that owe an answer, by name. The caller must detect their failure."""
        return {handing.to.name: handing.to for handing in self._handing.values() if handing.to is not None}

    def forget(self, broker: BrokerRef) -> None:
        """Forget a broker that has died or left. Messages that it has not settled go to others; those of QoS 2 that it
        has taken count as settled."""
        for counts in self._counts.values():
            counts.pop(broker.name, None)
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
        """Give a message to another member after its member has gone, here or at one of `brokers` (None: search).

        If no member is ready, a member here that is not connected keeps the message. If there is none, the message is
        lost. `settled` runs in any case.
        """
        if self._members.take(topic_filter, message, False, settled):
            return

        def asked(taken: bool) -> None:
            if not taken and not self._members.take(topic_filter, message, True, settled):
                settled()

        self.hand(topic_filter, message, brokers, asked, settled)

    # --- own publications --------------------------------------------------------------------------------------------

    def publish(self, groups: dict[str, list[BrokerRef]], message: Message, done: Callable[[int], None] | None) -> None:
        """Hand a publication to these groups, each with the brokers that have members. When all groups are settled or
        given up, `done` gets the number of groups that took the publication."""
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
            else:  # no member is connected: the first broker keeps the message for one
                self._force(topic_filter, message, brokers, done)

        self.hand(topic_filter, message, brokers, asked)

    def _force(self, topic_filter: str, message: Message, brokers: list[BrokerRef], done: Taken) -> None:
        def asked(taken: bool) -> None:
            if taken:
                done(True)
            else:  # the brokers with members have died meanwhile
                self.hand(topic_filter, message, None, done)

        handing = _Handing(topic_filter, message, self._in_turn(topic_filter, brokers), asked, lambda: None)
        handing.forced = True
        self._next(handing)
