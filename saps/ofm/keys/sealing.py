"""Seals and opens datagrams: a clear header of 21 bytes, the encrypted content, a tag of 16 bytes over both
(AES-256-GCM).

======  =====  ==============================================================================
bytes   field  meaning
======  =====  ==============================================================================
1       form   `FORM`; any other value is foreign
8       label  names the group's key: the topic, and the epoch of its members
4       sender number that the key server has given to this incarnation of the sending broker
8       count  grows with each datagram of the sender; begins at a number made from its incarnation
======  =====  ==============================================================================

Sender and count are the nonce. Two incarnations of a broker have different sender numbers, and count from different
beginnings; within one, a new key begins above the counts of all keys dropped before. So no nonce is used twice under
one key, whatever restarts or comes again. A refused datagram yields a `Refusal`, not an exception.
"""

from __future__ import annotations

import struct
from enum import Enum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from saps.ofm.keys.hierarchy import expand
from saps.ofm.keys.window import Window

FORM = 0xA2
"""First byte of every sealed datagram, naming this format. Unsealed datagrams are MessagePack arrays, which never begin
with this byte."""
HEADER = struct.Struct(">B8sIQ")
TAG = 16
OVERHEAD = HEADER.size + TAG
"""Bytes that sealing adds to a datagram."""
LABEL = 8
"""Length of a label in bytes."""
LONGEST_LIFE = 22
"""Bits of the count within one millisecond of a broker's incarnation. An incarnation that sends on average at most 2 to
this power datagrams a millisecond never reaches the counts of the next one."""
_NONCE = slice(9, 21)


class Refusal(Enum):
    """Why a datagram is not opened. The sender is not told."""

    FORM = "malformed"
    """The datagram is not of this format."""
    KEY = "unknown_key"
    """The key is not held, or no longer."""
    REPLAY = "replayed"
    """The number was seen already, or is too old to tell."""
    FORGED = "forged"
    """The datagram was not made with the key, or has been changed since."""


class Epoch:
    """One key of a topic's group at one broker. It seals what this broker sends, and opens what others have sealed."""

    __slots__ = ("_aead", "_origins", "_prefix", "_windows", "count", "group", "label", "lapses", "topic", "until")

    def __init__(self, topic: str, group: bytes, secret: bytes, sender: int, count: int) -> None:
        """`group` names the hierarchy that the `secret` comes from. `sender` is this broker's number, and `count` the
        one before its first datagram. Raises `struct.error` for a `sender` outside 32 bits."""
        self.topic = topic
        self.group = group
        self.label = label_of(topic, secret)
        self.until = float("inf")
        """Time in seconds from which datagrams under this key are refused."""
        self.lapses = float("inf")
        """Time in seconds from which this key no longer seals."""
        self.count = count
        """The count of the last datagram sealed."""
        self._aead = AESGCM(expand(secret, b"saps ofm traffic " + topic.encode()))
        self._prefix = HEADER.pack(FORM, self.label, sender, 0)[:13]
        self._windows: dict[int, Window] = {}
        self._origins: dict[int, tuple[str, int]] = {}

    def seal(self, plain: bytes) -> bytes:
        """Return a sealed datagram, ready to be sent."""
        self.count += 1
        header = self._prefix + self.count.to_bytes(8, "big")
        return header + self._aead.encrypt(header[_NONCE], plain, header)

    def open(self, raw: bytes, sender: int, count: int) -> bytes | Refusal:
        """Return the content of a datagram, or why it is refused. `sender` and `count` are those in its header.
        Replayed numbers are refused before the costly decryption. The window of a sender begins with its first
        authentic datagram."""
        window = self._windows.get(sender)
        if window is not None and not window.fresh(count):
            return Refusal.REPLAY
        try:
            plain = self._aead.decrypt(raw[_NONCE], raw[HEADER.size :], raw[: HEADER.size])
        except InvalidTag:
            return Refusal.FORGED
        if window is None:
            window = self._windows[sender] = Window()
        window.note(count)
        return plain

    def peek(self, raw: bytes) -> bytes | None:
        """Return the content without recording its number, or None if the datagram was not made with this key."""
        try:
            return self._aead.decrypt(raw[_NONCE], raw[HEADER.size :], raw[: HEADER.size])
        except InvalidTag:
            return None

    def speaks_for(self, sender: int, origin: tuple[str, int]) -> bool:
        """Return whether a sender number still belongs to the same `origin`, the name and incarnation inside its
        datagrams."""
        return self._origins.setdefault(sender, origin) == origin


def label_of(topic: str, secret: bytes) -> bytes:
    """Return the label that names a group's secret in the header. It reveals nothing about the secret."""
    return expand(secret, b"saps ofm label " + topic.encode())[:LABEL]


def mark_of(raw: bytes) -> bytes:
    """Return the header and tag of a sealed datagram, by which its sender recognizes it when it comes back. They cannot
    be made for another content, and the count tells repeated datagrams apart."""
    return raw[: HEADER.size] + raw[-TAG:]


def first_count(incarnation: int) -> int:
    """Return the count before the first one of an `incarnation` (milliseconds since 1970)."""
    return incarnation << LONGEST_LIFE & (1 << 64) - 1
