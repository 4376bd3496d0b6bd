"""A frame of own publications that has not been sent yet: publications of the same event-loop turn may join it."""

from __future__ import annotations

from collections.abc import Sequence

from saps.overlay.delivery.pending import Pending
from saps.overlay.delivery.publications import give
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.rendezvous.streams import Stream
from saps.overlay.ring.keys import BrokerRef
from saps.routing.batch import MOST, Batch

MOST_BYTES = 1 << 17
"""Payload bytes above which nothing joins a frame, because a receiver starts on a frame only when it is complete."""


class OutgoingFrame:
    """Publications with one QoS and retain flag that leave for the same brokers.

    The frames of all branches share the lists of `body`. So joining costs O(1) in the number of branches.
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
        """Number of the frame at this broker: a frame with a greater number leaves later."""
        self.body = Publish(0, 0, 0, qos, retain, [], [], [], [], [], [])
        self.streams: list[Stream] = []
        """The streams of the parts of `body`."""
        self.pending: Pending | None = None
        """Pending acknowledgement, with QoS 1 and 2."""
        self.copies = 0
        """Frames in the outbox that share the lists of `body`."""
        self.crossing = 0
        """Frames among `copies` that go to other clusters."""
        self.members: tuple[BrokerRef, ...] = ()
        self.served: tuple[BrokerRef, ...] = ()
        """The members that an OpenFlow tree serves."""
        self._numbers: dict[str, int] = {}
        self._properties: dict[int, int] = {}
        self._size = 0

    def takes(self, streams: Sequence[Stream], batch: Batch) -> bool:
        """Return whether a batch may join. It may not if the frame is full, or if the last publication to one of its
        topics leaves after this frame."""
        if len(self.body.which) + len(batch.which) > MOST or self._size >= MOST_BYTES:
            return False
        return all([stream.frame <= self.serial for stream in streams])

    def add(self, streams: Sequence[Stream], batch: Batch) -> list[int]:
        """Add a batch that has sequence numbers. Returns the index of the part of each of its topics."""
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
