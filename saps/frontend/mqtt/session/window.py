"""Tracks the messages in flight to a client with QoS 1 and 2, by packet identifier (MQTT 5.0, 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice

from saps.frontend.mqtt.codec.reasons import ProtocolError
from saps.routing.batch import Batch, Form

Copy = tuple[Batch, Form]
"""A publication as a batch of one, and the form in which the client gets it."""
QUARTER = 1 << 14
"""Number of packet identifiers in each quarter. A session keeps to one as long as it can; its branches beyond a cut
have others, so that the client never takes messages of two brokers for one."""


def following(packet_id: int) -> int:
    """Return the next packet identifier of the same quarter."""
    after = packet_id + 1
    return after if after % QUARTER else (packet_id - packet_id % QUARTER) or 1


def beside(packet_id: int, place: int) -> int:
    """Return a packet identifier of the next quarter. `place`: any number."""
    return ((packet_id // QUARTER + 1) % 4 * QUARTER + place % QUARTER) or 1


class Window:
    """The messages in flight to one client."""

    __slots__ = ("elsewhere", "inflight", "next_id", "repeats")

    def __init__(self) -> None:
        self.inflight: dict[int, Copy | None] = {}
        """By packet identifier, in the order of sending: the unacknowledged message, or None after PUBREL."""
        self.repeats: dict[int, Copy] | None = None
        """Messages in flight to retransmit on the current connection, newest first; None if there are none."""
        self.next_id = 1
        self.elsewhere: dict[int, Copy] | None = None
        """Messages in flight that the client has acknowledged to another broker; None if there are none."""

    def take_ids(self, count: int) -> Sequence[int]:
        """Return `count` packet identifiers that are not in use."""
        first, inflight = self.next_id, self.inflight
        if count == 1 and first not in inflight:
            self.next_id = following(first)
            return (first,)
        packet_ids: Sequence[int] = range(first, first + count)
        if first % QUARTER + count > QUARTER or not inflight.keys().isdisjoint(packet_ids):
            packet_ids = list(islice(self._free_ids(), count))
        self.next_id = following(packet_ids[-1])
        return packet_ids

    def take_id(self, others: Container[int]) -> int:
        """Return a packet identifier that is neither in use nor among `others`."""
        while (packet_id := self.take_ids(1)[0]) in others:
            pass
        return packet_id

    def _free_ids(self) -> Iterator[int]:
        """Yield those of the present quarter, then all others."""
        first, begin = self.next_id, self.next_id - self.next_id % QUARTER
        quarter = chain(range(first, begin + QUARTER), range(begin or 1, first))
        others = chain(range(begin + QUARTER, 1 << 16), range(1, begin))
        for packet_id in chain(quarter, others):
            if packet_id not in self.inflight:
                yield packet_id

    def acknowledge(self, data: bytes, pos: int) -> int:
        """Handle consecutive PUBACKs without reason codes from `pos` on.

        Returns the position of their end, or of the first PUBACK that this fast path does not handle.
        """
        inflight, size = self.inflight, len(data)
        if self.repeats:
            return pos
        while pos + 4 <= size and data[pos] == 0x40 and data[pos + 1] == 2:
            packet_id = data[pos + 2] << 8 | data[pos + 3]
            copy = inflight.get(packet_id)
            if copy is None or copy[1].qos != 1 or copy[0].share is not None:
                break
            del inflight[packet_id]
            pos += 4
        return pos

    def check_qos(self, packet_id: int, qos: int) -> None:
        """Check the QoS of an acknowledgement (4.3.2, 4.3.3).

        Raises `ProtocolError` if the message was sent with another QoS; the message stays in flight.
        """
        if packet_id in self.inflight:
            copy = self.inflight[packet_id]
            sent = 2 if copy is None else copy[1].qos
            if sent != qos:
                raise ProtocolError(f"a message of QoS {sent} is acknowledged as one of QoS {qos}")

    def forget(self, packet_id: int) -> None:
        """Remove a message from the window."""
        copy = self.inflight[packet_id]
        del self.inflight[packet_id]
        if self.repeats is not None:
            self.repeats.pop(packet_id, None)
        if copy is not None and copy[0].share is not None:
            copy[0].share.settled()

    def settle(self) -> None:
        """Remove messages that the client has acknowledged elsewhere; the client must not be connected.

        A QoS 2 message leaves a PUBREL: the client may have got the message here, too, and keep its identifier.
        """
        elsewhere, self.elsewhere = self.elsewhere or {}, None
        for packet_id, copy in elsewhere.items():
            if self.inflight.get(packet_id) is copy:
                self.forget(packet_id)
                if copy[1].qos == 2:
                    self.inflight[packet_id] = None

    def give_back(self, closed: bool) -> list[Batch]:
        """Remove and return the messages of shared subscriptions that may go to another member: those with QoS 1.

        A QoS 2 message stays with the client, as it may have been delivered (MQTT-4.8.2-5). It is lost if the session
        is `closed`.
        """
        back: list[Batch] = []
        for packet_id, copy in list(self.inflight.items()):
            if copy is None or copy[0].share is None:
                continue
            if copy[1].qos == 1:
                del self.inflight[packet_id]
                back.append(copy[0])
            elif closed:
                copy[0].share.settled()
        return back
