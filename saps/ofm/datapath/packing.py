"""Packs publications of one broker into sealed datagrams, and computes how much fits into a datagram."""

from __future__ import annotations

from saps.ofm.datapath.datagram import publications, without_publications
from saps.ofm.datapath.path import Path
from saps.ofm.keys.epochs import Keyring
from saps.ofm.keys.sealing import OVERHEAD
from saps.overlay.frames.delivery import Part, Publish
from saps.overlay.port import Port
from saps.overlay.ring.keys import BrokerRef

NUMBER = (1 << 62) - 1
"""The number that takes most bytes in a datagram."""


class Packing:
    """Packs datagrams. The argument `origin` is the origin of publications from another domain, or None for this
    broker."""

    def __init__(self, port: Port, keys: Keyring, largest: int) -> None:
        """`largest` is the size of the largest datagram in bytes."""
        self._port = port
        self._keys = keys
        self._largest = largest

    def room(self, path: Path, origin: BrokerRef | None) -> int:
        """Return the bytes that a datagram has for publications."""
        overhead = path.overheads.get(origin)
        if overhead is None:
            me = self._port.me
            largest = Publish(0, 0, 0, 2, True, [Part(path.stream.topic, NUMBER)], [], [NUMBER], [b""], [], [])
            empty = publications(path.served.tree, origin or me, NUMBER, largest, me if origin else None)
            overhead = path.overheads[origin] = len(empty) + OVERHEAD
        return self._largest - overhead

    def publications(self, path: Path, serial: int, body: Publish, origin: BrokerRef | None) -> bytes | None:
        """Return a sealed datagram with these publications, or None if there is no key."""
        me = self._port.me
        plain = publications(path.served.tree, origin or me, serial, body, me if origin else None)
        return self._keys.seal(path.group, plain, self._port.now)

    def empty(self, path: Path, serial: int, flag: int) -> bytes | None:
        """Return a sealed high-water mark or probe, or None if there is no key."""
        topic, seq = path.stream.topic, max(path.stream.last_seq, 1)
        plain = without_publications(path.served.tree, self._port.me, serial, topic, seq, flag)
        return self._keys.seal(path.group, plain, self._port.now)
