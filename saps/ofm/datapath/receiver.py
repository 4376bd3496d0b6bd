"""The receiving half of OFM at one broker: opens datagrams, puts them in order, and acknowledges them.

A datagram that no key of this broker can open is counted and dropped. It causes nothing else: no answer, no question,
no state (`saps.ofm.keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from saps.ofm.datapath.congestion import FEEDBACK
from saps.ofm.datapath.datagram import PROBE, Datagram, parse
from saps.ofm.datapath.flights import LONGEST
from saps.ofm.datapath.loads import joined
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.sealing import Refusal
from saps.ofm.stateless.address import EVERY_TOPIC
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.delivery.order import DOUBTED, Inbox
from saps.overlay.frames.delivery import OfmAck
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import MOST

UNHEARD = 4096
"""Most topics whose datagrams since the last acknowledgement are counted. Beyond it counting begins anew, which delays
acknowledgements."""


class Receiver:
    """The receiving half of `saps.ofm.datapath.datapath.Datapath`, which shares its `counts`."""

    def __init__(
        self,
        port: Port,
        inbox: Inbox,
        wants: Callable[[str], bool],
        keys: Keyring,
        settings: DatapathSettings,
        counts: dict[str, int],
    ) -> None:
        """`wants` returns whether this broker has a subscriber for a topic."""
        self._port = port
        self._inbox = inbox
        self._wants = wants
        self._keys = keys
        self._settings = settings
        self._counts = counts
        self._due: dict[tuple[BrokerRef, BrokerRef, str], tuple[int, int]] = {}
        """Acknowledgements to be sent: (sender, origin, topic) -> (last number, subscribers reached)."""
        self._unheard: dict[tuple[BrokerRef, BrokerRef, str], int] = {}
        """(sender, origin, topic) -> datagrams since the last acknowledgement."""
        self.represents: Callable[[BrokerRef, BrokerRef], bool] = lambda sender, origin: False
        """Returns whether `sender` may send publications of `origin`, which is in another domain, along a tree."""
        self._acknowledging = False
        self.on_heard: Callable[[str, Tree], None] | None = None
        """Called with topic and tree when a topic that this broker wants has come by a tree."""

    def receive(self, raws: Iterable[bytes]) -> None:
        """Handle received datagrams. Datagrams with consecutive publications are handed on together."""
        together: list[Datagram] = []
        count = 0
        for raw in raws:
            datagram = self._opened(raw)
            if datagram is None:
                continue
            count += len(datagram.seqs)
            if together and (count > MOST or not _goes_on(datagram, together[-1])):
                self._arrived(together)
                together, count = [], len(datagram.seqs)
            together.append(datagram)
        if together:
            self._arrived(together)

    def _opened(self, raw: bytes) -> Datagram | None:
        """Return the datagram if a permitted broker has sent it and this broker wants it. Otherwise count it and return
        None."""
        opened = self._keys.open(raw, self._port.now)
        if isinstance(opened, Refusal):
            self._counts[opened.value] += 1
            return None
        datagram = parse(opened.plain)
        if datagram is None or opened.epoch.topic not in (datagram.topic, EVERY_TOPIC):
            self._counts["malformed"] += 1
            return None
        sender = datagram.sender
        if not opened.epoch.speaks_for(opened.sender, (sender.name, sender.incarnation)):
            self._counts["forged"] += 1
        elif sender.name == self._port.me.name:
            pass  # a late loopback packet, which the sender has given up
        elif datagram.representative is not None and not self.represents(datagram.representative, datagram.origin):
            self._counts["forged"] += 1
        elif not self._wants(datagram.topic) or self._port.lost(datagram.origin):
            self._counts["unwanted"] += 1
        else:
            return datagram
        return None

    def forget(self, broker: BrokerRef) -> None:
        """Forget the acknowledgements owed to or about a broker that has died."""
        for table in (self._due, self._unheard):
            for key in [key for key in table if broker in key[:2]]:
                del table[key]

    def _arrived(self, together: list[Datagram]) -> None:
        """Handle datagrams of one sender to one topic. If there are several, their publications are consecutive."""
        datagram = together[0]
        origin, topic = datagram.origin, datagram.topic
        key = datagram.sender, origin, topic
        self._counts["received"] += len(together)
        if self.on_heard is not None:
            self.on_heard(topic, datagram.tree)
        if datagram.flags & PROBE:
            self._answer_probe(key, datagram.seqs[-1], self._port.now + LONGEST)
            return
        if datagram.is_empty:
            self._inbox.expect(origin, topic, datagram.seqs[-1])
            return
        frame, before = joined([each.frame() for each in together]), self._inbox.duplicates
        (reached,) = self._inbox.accept(origin, frame)
        duplicates = self._inbox.duplicates - before
        self._counts["duplicates"] += duplicates
        if reached == DOUBTED or (duplicates == len(frame.seqs) and not frame.qos):
            return  # with QoS 1 and 2 a repeat is acknowledged again: the first copy may have come by ALM
        unheard = self._unheard.pop(key, 0) + len(together)
        if not frame.qos and unheard < FEEDBACK:
            if len(self._unheard) >= UNHEARD:
                self._unheard.clear()
            self._unheard[key] = unheard
        else:
            last, subscribers = self._due.get(key, (0, 0))
            upto = max(last, frame.seqs[-1], self._inbox.delivered(origin, topic))  # the frame may have filled a gap
            self._due[key] = upto, reached or subscribers
            if not self._acknowledging:
                self._acknowledging = True
                self._port.after(self._settings.acknowledge, self._acknowledge)

    def _answer_probe(self, key: tuple[BrokerRef, BrokerRef, str], seq: int, until: float) -> None:
        """Tell the sender how far this broker has come. Tell it again later, until `until`, if ALM still brings
        something before `seq`."""
        sender, origin, topic = key
        if self._port.lost(sender):
            return
        level = self._inbox.has(origin, topic, seq)
        self._counts["acks"] += 1
        self._port.send(sender, OfmAck(topic, seq if level else self._inbox.delivered(origin, topic), 0))
        if not level and self._port.now < until:
            self._port.after(10 * self._settings.acknowledge, lambda: self._answer_probe(key, seq, until))

    def _acknowledge(self) -> None:
        """Send the due acknowledgements. An acknowledgement stops before the first gap; then it is sent again later."""
        due, self._due = self._due, {}
        for (sender, origin, topic), (seq, subscribers) in due.items():
            delivered = self._inbox.delivered(origin, topic)
            if self._port.lost(sender) or self._port.lost(origin):
                continue
            if delivered < seq:
                self._due[sender, origin, topic] = seq, subscribers
            self._counts["acks"] += 1
            ack = OfmAck(topic, min(delivered, seq), subscribers, None if sender == origin else origin)
            self._port.send(sender, ack)
        self._acknowledging = bool(self._due)
        if self._due:
            self._port.after(10 * self._settings.acknowledge, self._acknowledge)


def _goes_on(datagram: Datagram, before: Datagram) -> bool:
    """Return whether the publications of `datagram` directly follow those of `before`, so that both are handed on
    together."""
    return (
        datagram.prev == before.seqs[-1]
        and datagram.flags == before.flags
        and datagram.epoch == before.epoch
        and datagram.topic == before.topic
        and datagram.origin == before.origin
        and datagram.representative == before.representative
        and not datagram.is_empty
    )
