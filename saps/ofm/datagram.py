"""What travels by OFM: one MessagePack array in one UDP datagram, self-contained because any of them may be lost.

The rewriting switches leave nothing of the OFM address in the packet (SAPS 2016, 3.1.2), so topic, address and epoch of
the tree travel inside. Parsing never raises outwards: what is malformed is None, to be counted and dropped.
"""

from __future__ import annotations

import msgspec

from saps.messages import Properties
from saps.overlay.bounds import Number
from saps.overlay.frames import Data
from saps.overlay.keys import BrokerRef
from saps.overlay.sound import carried_unsound
from saps.overlay.trees import Tree

VERSION = 1
"""Version of the format; a datagram of another one is dropped."""
HIGH_WATER = 8
"""Flag: no publication, but the number of the sender's last one to the topic, for those who missed the last ones."""
_QOS, _RETAIN = 3, 4


class Datagram(msgspec.Struct, array_like=True, frozen=True):
    """One datagram, as sent to the OFM address and as returned to its sender (the loopback packet)."""

    version: int
    address: str
    """The OFM address it was sent to, ``IP:port``."""
    epoch: int
    """Which tree at this address."""
    origin: BrokerRef
    serial: Number
    """Counts all datagrams of this life of the sender: names the loopback packet."""
    seq: Number
    prev: Number
    """Number of the publication, and of the origin's previous one to the topic (`saps.overlay.frames.Data`)."""
    flags: int
    """Bits 0 and 1: QoS, bit 2: retain, bit 3: `HIGH_WATER`."""
    topic: str
    payload: bytes
    properties: Properties | None = None
    representative: BrokerRef | None = None
    """Who has sent it, if the origin is in another domain; None: the origin."""

    @property
    def sender(self) -> BrokerRef:
        """Who has sent it, and gets it back."""
        return self.representative or self.origin

    @property
    def tree(self) -> Tree:
        """The tree it was sent along."""
        return Tree(self.address, self.epoch)

    @property
    def is_high_water(self) -> bool:
        """It only says which publication was the last."""
        return bool(self.flags & HIGH_WATER)

    def data(self) -> Data:
        """The publication, as if it had come by ALM with an empty slice."""
        return Data(
            0,
            self.seq,
            self.prev,
            0,
            0,
            self.topic,
            self.payload,
            self.flags & _QOS,
            bool(self.flags & _RETAIN),
            self.properties,
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Datagram)


def publication(
    tree: Tree, origin: BrokerRef, serial: int, data: Data, representative: BrokerRef | None = None
) -> bytes:
    """The datagram for a publication of `origin`'s own, or that a representative sends for it."""
    flags = data.qos | (_RETAIN if data.retain else 0)
    return _encoder.encode(
        Datagram(
            VERSION,
            tree.address,
            tree.epoch,
            origin,
            serial,
            data.seq,
            data.prev,
            flags,
            data.topic,
            data.payload,
            data.properties,
            representative,
        )
    )


def high_water(tree: Tree, origin: BrokerRef, serial: int, topic: str, seq: int) -> bytes:
    """The datagram that says: `seq` is the last I published to the topic."""
    return _encoder.encode(
        Datagram(VERSION, tree.address, tree.epoch, origin, serial, seq, 0, HIGH_WATER, topic, b"", None)
    )


def parse(raw: bytes | memoryview) -> Datagram | None:
    """The datagram in these bytes; None if they are none, or of another version."""
    try:
        datagram = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    sound = (
        datagram.version == VERSION
        and datagram.flags & _QOS <= 2
        and 0 <= datagram.flags <= HIGH_WATER + _RETAIN + 2
        and 0 <= datagram.prev < datagram.seq
        and datagram.serial > 0
        and carried_unsound(datagram.topic, datagram.properties) is None
    )
    return datagram if sound else None
