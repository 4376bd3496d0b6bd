"""A frame of own publications that has not been sent yet: what is published in the same turn may join it."""

from __future__ import annotations

from collections.abc import Sequence

from saps.local.batch import MOST, Batch
from saps.overlay.delivery.pending import Pending
from saps.overlay.delivery.publications import give
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef

MOST_BYTES = 1 << 17
"""Payload in a frame above which nothing joins it: the receiver begins with a frame when all of it is there."""


class OutgoingFrame:
    """Publications with one QoS and retain flag that leave for the same brokers.

    The frames of all branches share the lists of `body`, so that joining costs as much for many as for one.
    """

    __slots__ = (
        "_numbers",
        "_properties",
        "_size",
        "body",
        "copies",
        "crossing",
        "members",
        "pending",
        "serial",
        "served",
        "streams",
    )

    def __init__(self, serial: int, qos: int, retain: bool) -> None:
        self.serial = serial
        """Counts the frames of this broker: one with a greater number leaves later."""
        self.body = Publish(0, 0, 0, qos, retain, [], [], [], [], [], [])
        self.streams: list[Stream] = []
        """Of the parts."""
        self.pending: Pending | None = None
        """With QoS 1 and 2."""
        self.copies = 0
        """Frames in the outbox that carry it."""
        self.crossing = 0
        """Those of them that go to other clusters."""
        self.members: tuple[BrokerRef, ...] = ()
        self.served: tuple[BrokerRef, ...] = ()
        """Those of the members that a tree serves."""
        self._numbers: dict[str, int] = {}
        self._properties: dict[int, int] = {}
        self._size = 0

    def takes(self, streams: Sequence[Stream], batch: Batch) -> bool:
        """May a batch join? Not if there is no room, nor if the last publication to one of its topics leaves behind
        this frame."""
        if len(self.body.which) + len(batch.which) > MOST or self._size >= MOST_BYTES:
            return False
        return all([stream.frame <= self.serial for stream in streams])

    def add(self, streams: Sequence[Stream], batch: Batch) -> list[int]:
        """Take a batch in that has been numbered. Returns which parts its topics are."""
        body, numbers, seqs, serial = self.body, self._numbers, batch.seqs, self.serial
        parts: list[int] = []
        for stream in streams:
            number = numbers.get(stream.topic)
            if number is None:
                number = numbers[stream.topic] = len(body.parts)
                body.parts.append(Part(stream.topic, stream.last_seq))
                self.streams.append(stream)
            parts.append(number)
            stream.frame = serial
        if len(streams) == 1:
            body.which += parts * len(seqs)
            streams[0].last_seq = seqs[-1]
            streams[0].published += len(seqs)
        else:
            for number, seq in zip(batch.which, seqs, strict=True):
                streams[number].last_seq = seq
                streams[number].published += 1
            body.which += [parts[number] for number in batch.which]
        before, payloads = len(body.payloads), batch.payloads
        body.seqs += seqs
        body.payloads += payloads
        if batch.properties is not None:
            if not body.given:
                body.given += [0] * before
            give(body, batch.properties, self._properties)
        elif body.given:
            body.given += [0] * len(seqs)
        self._size += sum(map(len, payloads))
        return parts
