"""Forwards frames with publications to the next broker; brokers and slices are named by the link ids of each link."""

from __future__ import annotations

from typing import Protocol

from saps.overlay.delivery.express import FIRST as EXPRESS
from saps.overlay.delivery.publications import counts_of
from saps.overlay.delivery.repairs import Repairs
from saps.overlay.delivery.tree import Branch, divide
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, Publish
from saps.overlay.frames.link_ids import ReceivedLinkIds, SentLinkIds
from saps.overlay.port import Port
from saps.overlay.rendezvous.ways import Ways
from saps.overlay.ring.keys import BrokerRef
from saps.statistics import Statistics

NUMBERS_KEPT = 60.0
"""Time for which a broker's link ids are kept after its death, in seconds."""
_WITH_NUMBERS = (Publish, DefineBroker, DefineSlice)


class Outbox(Port, Protocol):
    """A port with a visible queue of outgoing frames."""

    outbox: list[tuple[BrokerRef, Frame]]
    """Outgoing frames with their receivers. The list only grows; when the port has sent all, it starts a new list."""

    def wanted(self) -> None:
        """Request a flush: a frame waits to be sent that is not in the outbox yet (`Multicast.flush`)."""


class Forwarder:
    """Forwards publications for one broker, and resolves the link ids in the frames that it receives."""

    def __init__(self, port: Outbox, ways: Ways) -> None:
        self._port = port
        self._ways = ways
        self._outbound: dict[str, SentLinkIds] = {}
        self._express: dict[str, SentLinkIds] = {}
        self._inbound: dict[str, ReceivedLinkIds] = {}
        self.statistics: Statistics | None = None
        """Counters by topic, or None while nobody counts."""
        self.sent = 0
        """Copies of messages sent to other brokers since the start."""
        self.published = 0
        """This broker's publications to others since the start, along trees, too."""
        self.repairs = Repairs()

    def forward(self, origin: BrokerRef, frame: Publish, branch: Branch, token: int) -> None:
        """Send publications to the child of a branch. `token` is 0 if no acknowledgement is wanted; then an unreachable
        child is left out, and its slice is divided among others."""
        child, slice = branch
        if not token and not self._port.reachable(child):
            for onward in divide(self._port.me, slice, self._port.order):
                self.forward(origin, frame, onward, 0)
            return
        urgent = self._ways.is_urgent(frame.parts[0].topic)
        lane = self._express if urgent else self._outbound
        outbound = lane.get(child.name)
        if outbound is None or (outbound.to is not child and outbound.to != child):
            outbound = lane[child.name] = SentLinkIds(child, EXPRESS if urgent else 0)
        number = outbound.brokers.get(origin) or outbound.name(origin, self._port)
        slice_number = 0
        if slice:
            slice_number = outbound.slices.get(slice) or outbound.name_slice(slice, self._port)
        self.sent += len(frame.which)
        if self.statistics is not None and child.cluster != self._port.me.cluster:
            for topic, copies in counts_of(frame):
                self.statistics.crossed(topic, copies)
        properties, given = frame.properties, frame.given  # the lists are shared: what joins the frame joins all copies
        content = frame.parts, frame.which, frame.seqs, frame.payloads, properties, given
        self._port.send(child, Publish(number, slice_number, token, frame.qos, frame.retain, *content))

    # --- frames from other brokers ----------------------------------------------------------------------------------

    def resolve(self, sender: BrokerRef, frame: Publish) -> tuple[BrokerRef, list[Branch]]:
        """Return the origin of the publications, and the branches to the slice that this broker must pass them on to.
        Raises `ProtocolError` if the sender uses a link id that it has not defined."""
        try:
            inbound = self._inbound[sender.name]
            return inbound.brokers[frame.origin], inbound.branches[frame.slice]
        except KeyError as error:
            raise _unknown(sender, error) from None

    def define_broker(self, sender: BrokerRef, frame: DefineBroker) -> None:
        """Record the link id that the sender uses for a broker."""
        self._inbound.setdefault(sender.name, ReceivedLinkIds()).give(frame.number, frame.ref)

    def define_slice(self, sender: BrokerRef, frame: DefineSlice) -> None:
        """Record the link id that the sender uses for a slice. Raises `ProtocolError` if the slice contains a broker
        without a defined link id."""
        inbound = self._inbound.setdefault(sender.name, ReceivedLinkIds())
        try:
            slice = tuple(inbound.brokers[number] for number in frame.brokers)
        except KeyError as error:
            raise _unknown(sender, error) from None
        inbound.define(frame.number, slice, self._port.me, self._port.order)

    # --- links and brokers that fail ----------------------------------------------------------------------------------

    def session_started(self, sender: BrokerRef) -> None:
        """Handle a new link session from `sender`: it defines the link ids of the common lane anew."""
        before = self._inbound.get(sender.name)
        learnt = ReceivedLinkIds() if before is None else before.without(lambda number: number <= EXPRESS)
        learnt.of = sender
        self._inbound[sender.name] = learnt

    def express_started(self, sender: BrokerRef) -> None:
        """Handle a new express connection from `sender`: it defines the link ids of the express lane anew."""
        before = self._inbound.get(sender.name)
        if before is not None:
            learnt = self._inbound[sender.name] = before.without(lambda number: number > EXPRESS)
            learnt.of = sender

    def link_down(self, peer: BrokerRef) -> None:
        """Handle the loss of a link to `peer`. Removes queued frames with link ids from the outbox: they would leave on
        a new link, where these link ids are undefined."""
        outbox = self._port.outbox
        incarnation = peer.name, peer.incarnation
        outbox[:] = [
            (to, frame)
            for to, frame in outbox
            if (to.name, to.incarnation) != incarnation or not isinstance(frame, _WITH_NUMBERS)
        ]
        self._outbound.pop(peer.name, None)
        self._express.pop(peer.name, None)

    def forget(self, broker: BrokerRef) -> None:
        """Forget the link ids of a dead broker after `NUMBERS_KEPT`. They are kept until then because a broker that was
        only cut off continues the same session with the same link ids."""
        inbound = self._inbound.get(broker.name)
        if inbound is None or (inbound.of is not None and inbound.of.incarnation > broker.incarnation):
            return
        died = inbound.died = self._port.now

        def still_dead() -> None:
            ever_since = inbound.died == died and self._port.lost(broker)
            if ever_since and self._inbound.get(broker.name) is inbound:
                self._inbound.pop(broker.name, None)

        self._port.after(NUMBERS_KEPT, still_dead)


def _unknown(sender: BrokerRef, error: KeyError) -> ProtocolError:
    number = error.args[0]
    named = f"the link id {number}" if isinstance(number, int) else "a link id"  # else the sender has defined none
    return ProtocolError(f"{sender.name} uses {named} without having defined it")
