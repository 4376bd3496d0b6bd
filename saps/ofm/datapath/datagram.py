"""The format of OFM: one MessagePack array in one UDP datagram, self-contained because any datagram may be lost.

The rewriting switches leave nothing of the OFM address in the packet (SAPS 2016, 3.1.2), so topic, address and epoch of
the tree travel inside. Parsing raises no error: a malformed datagram is None, to be counted and dropped.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from saps.messages import Properties
from saps.overlay.delivery.ofm_members import Tree
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.ring.keys import BrokerRef
from saps.overlay.validation.contents import publish_unsound, topic_unsound
from saps.overlay.validation.ranges import Number
from saps.routing.batch import MOST

VERSION = 2
"""Version of the format. Datagrams of other versions are dropped."""
HIGH_WATER = 8
"""Flag: the datagram has no publication, but the number of the sender's last one to the topic, for members that missed
the last ones."""
PROBE = 16
"""Flag: the datagram has no publication, but asks each member to tell its sender whether it has everything up to this
number."""
_QOS, _RETAIN = 3, 4


class Datagram(msgspec.Struct, array_like=True, frozen=True):
    """One datagram, as sent to the OFM address and as returned to its sender (the loopback packet)."""

    version: int
    address: str
    """The OFM address that the datagram was sent to, ``IP:port``."""
    epoch: int
    """The epoch that tells the trees at this address apart."""
    origin: BrokerRef
    serial: Number
    """Number of the datagram among all of this incarnation of the sender. It names the loopback packet."""
    prev: Number
    """Number of the origin's previous publication to the topic before the first one here
    (`saps.overlay.frames.kinds`)."""
    flags: int
    """Bits 0 and 1: QoS, bit 2: retain, bit 3: `HIGH_WATER`, bit 4: `PROBE`."""
    topic: str
    seqs: Annotated[list[Number], Meta(min_length=1, max_length=MOST)]
    """Sequence numbers of the publications. A high-water mark or a probe has that of the last publication."""
    payloads: Annotated[list[bytes], Meta(max_length=MOST)]
    properties: Annotated[list[Properties], Meta(max_length=MOST)] = []
    given: Annotated[list[Annotated[int, Meta(ge=0, le=MOST)]], Meta(max_length=MOST)] = []
    """The same as in `saps.overlay.frames.delivery.Publish`."""
    representative: BrokerRef | None = None
    """The broker that has sent the datagram for an origin in another domain. None if the origin has sent it."""

    @property
    def sender(self) -> BrokerRef:
        """The broker that has sent the datagram, and gets it back."""
        return self.representative or self.origin

    @property
    def tree(self) -> Tree:
        """The tree that the datagram was sent along."""
        return Tree(self.address, self.epoch)

    @property
    def is_empty(self) -> bool:
        """Whether the datagram has no publications: it is a high-water mark or a probe."""
        return bool(self.flags & (HIGH_WATER | PROBE))

    def frame(self) -> Publish:
        """Return the publications as a frame, as if they had come by ALM with an empty slice."""
        return Publish(
            0,
            0,
            0,
            self.flags & _QOS,
            bool(self.flags & _RETAIN),
            [Part(self.topic, self.prev)],
            [0] * len(self.seqs),
            self.seqs,
            self.payloads,
            self.properties,
            self.given,
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Datagram)


def publications(
    tree: Tree, origin: BrokerRef, serial: int, body: Publish, representative: BrokerRef | None = None
) -> bytes:
    """Return the encoded datagram for publications to one topic. A `representative` sends it for `origin`."""
    (part,) = body.parts
    return _encoder.encode(
        Datagram(
            VERSION,
            tree.address,
            tree.epoch,
            origin,
            serial,
            part.prev,
            body.qos | (_RETAIN if body.retain else 0),
            part.topic,
            body.seqs,
            body.payloads,
            body.properties,
            body.given,
            representative,
        )
    )


def without_publications(tree: Tree, origin: BrokerRef, serial: int, topic: str, seq: int, flag: int) -> bytes:
    """Return the encoded datagram that tells `seq`, the number of the origin's last publication to the topic. `flag` is
    `HIGH_WATER` or `PROBE`."""
    return _encoder.encode(Datagram(VERSION, tree.address, tree.epoch, origin, serial, 0, flag, topic, [seq], []))


def parse(raw: bytes | memoryview) -> Datagram | None:
    """Return the datagram in these bytes, or None if they are malformed or of another version."""
    try:
        datagram = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if (
        datagram.version != VERSION
        or datagram.flags & _QOS > 2
        or not 0 <= datagram.flags <= PROBE
        or datagram.serial <= 0
    ):
        return None
    if datagram.is_empty:
        sound = len(datagram.seqs) == 1 and datagram.seqs[0] > 0 and topic_unsound(datagram.topic) is None
    else:
        sound = publish_unsound(datagram.frame()) is None
    return datagram if sound else None
