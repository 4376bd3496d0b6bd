"""What comes in by OFM at one broker: datagrams are opened, put in order, and acknowledged.

Whatever cannot be opened with a key that this broker holds is counted and dropped, and causes nothing else: no answer,
no question, no state (`saps.ofm.keys`).
"""

from __future__ import annotations

from collections.abc import Callable

from saps.ofm.datapath.congestion import FEEDBACK
from saps.ofm.datapath.datagram import Datagram, parse
from saps.ofm.datapath.settings import DatapathSettings
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.sealing import Refusal
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.delivery.order import DOUBTED, Inbox
from saps.overlay.frames.delivery import OfmAck
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef


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
        """`wants`: does this broker have a subscriber for a topic?"""
        self._port = port
        self._inbox = inbox
        self._wants = wants
        self._keys = keys
        self._settings = settings
        self._counts = counts
        self._due: dict[tuple[BrokerRef, BrokerRef, str], tuple[int, int]] = {}
        """Acknowledgements to be sent, by sender, origin and topic: (last number, subscribers reached)."""
        self._unheard: dict[tuple[BrokerRef, BrokerRef, str], int] = {}
        """Datagrams since the last acknowledgement, by the same."""
        self.represents: Callable[[BrokerRef, BrokerRef], bool] = lambda sender, origin: False
        """May the one send publications of the other, which is in another domain, along a tree?"""
        self._acknowledging = False
        self.on_heard: Callable[[str, Tree], None] | None = None
        """Called when a topic that this broker wants has come by a tree."""

    def receive(self, raw: bytes) -> None:
        """A datagram has come in."""
        opened = self._keys.open(raw, self._port.now)
        if isinstance(opened, Refusal):
            self._counts[opened.value] += 1
            return
        datagram = parse(opened.plain)
        if datagram is None or datagram.topic != opened.epoch.topic:
            self._counts["malformed"] += 1
        elif not opened.epoch.speaks_for(opened.sender, (datagram.sender.name, datagram.sender.incarnation)):
            self._counts["forged"] += 1
        elif datagram.sender.name == self._port.me.name:
            pass  # a loopback packet that is waited for no more
        elif datagram.representative is not None and not self.represents(datagram.representative, datagram.origin):
            self._counts["forged"] += 1
        elif not self._wants(datagram.topic) or self._port.lost(datagram.origin):
            self._counts["unwanted"] += 1
        else:
            self._arrived(datagram)

    def forget(self, broker: BrokerRef) -> None:
        """A broker died: it is owed no acknowledgement."""
        for table in (self._due, self._unheard):
            for key in [key for key in table if broker in key[:2]]:
                del table[key]

    def _arrived(self, datagram: Datagram) -> None:
        self._counts["received"] += 1
        if self.on_heard is not None:
            self.on_heard(datagram.topic, datagram.tree)
        if datagram.is_high_water:
            self._inbox.expect(datagram.origin, datagram.topic, datagram.seqs[-1])
            return
        frame, duplicates = datagram.frame(), self._inbox.duplicates
        (reached,) = self._inbox.accept(datagram.origin, frame)
        self._counts["duplicates"] += self._inbox.duplicates - duplicates
        if reached == DOUBTED:
            return
        key = datagram.sender, datagram.origin, datagram.topic
        unheard = self._unheard.pop(key, 0) + 1
        if not frame.qos and unheard < FEEDBACK:
            self._unheard[key] = unheard
        else:
            last, subscribers = self._due.get(key, (0, 0))
            self._due[key] = max(last, frame.seqs[-1]), reached or subscribers
            if not self._acknowledging:
                self._acknowledging = True
                self._port.after(self._settings.acknowledge, self._acknowledge)

    def _acknowledge(self) -> None:
        """Send what is due; where something before it is missing, as far as it goes, and again later."""
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
