"""A sealed datagram: a header of 21 bytes in clear, the datagram encrypted, a tag of 16 bytes over both (AES-256-GCM).

======  =====  ==============================================================================
bytes   field  meaning
======  =====  ==============================================================================
1       form   `FORM`; anything else is not ours
8       label  names the group's key: the topic, and the epoch of its members
4       sender number that the key server has given to this life of the sending broker
8       count  grows with each datagram of the sender; begins at a number made from its incarnation
======  =====  ==============================================================================

Sender and count are the nonce. Two lives of a broker have different numbers, and count from different beginnings: so no
nonce is used twice under one key, whatever restarts. What is refused is told as a `Refusal`; nothing raises outwards.
"""

from __future__ import annotations

import struct
from enum import Enum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from saps.ofm.keys.hierarchy import expand
from saps.ofm.keys.window import Window

FORM = 0xA2
"""First byte of every sealed datagram: this format. MessagePack, as unsealed ones were, never begins an array so."""
HEADER = struct.Struct(">B8sIQ")
TAG = 16
OVERHEAD = HEADER.size + TAG
"""Bytes by which sealing makes a datagram longer."""
LABEL = 8
"""Bytes of a label."""
LONGEST_LIFE = 22
"""A broker may send 2 to this power datagrams in each millisecond of its life, until its next one could count alike."""
_NONCE = slice(9, 21)


class Refusal(Enum):
    """Why a datagram is not opened. Nobody is told."""

    FORM = "malformed"
    """It is not of this format."""
    KEY = "unknown_key"
    """No such key is held (any more)."""
    REPLAY = "replayed"
    """Its number has come already, or is too old to tell."""
    FORGED = "forged"
    """It was not made with the key, or has been changed since."""


class Epoch:
    """One key of a topic's group, at one broker: it seals what this one sends, and opens what others have sealed."""

    __slots__ = ("_aead", "_count", "_origins", "_prefix", "_windows", "label", "lapses", "sender", "topic", "until")

    def __init__(self, topic: str, secret: bytes, sender: int, incarnation: int) -> None:
        """`secret`: of the group; `sender`, `incarnation`: of this broker. Raises struct.error if they do not fit."""
        self.topic = topic
        self.label = label_of(topic, secret)
        self.until = float("inf")
        """When it is not accepted any more."""
        self.lapses = float("inf")
        """When it is not sealed with any more."""
        self.sender = sender
        self._aead = AESGCM(expand(secret, b"saps ofm traffic " + topic.encode()))
        self._count = first_count(incarnation)
        self._prefix = HEADER.pack(FORM, self.label, sender, 0)[:13]
        self._windows: dict[int, Window] = {}
        self._origins: dict[int, tuple[str, int]] = {}

    def seal(self, plain: bytes) -> bytes:
        """A datagram, ready to be sent."""
        self._count += 1
        header = self._prefix + self._count.to_bytes(8, "big")
        return header + self._aead.encrypt(header[_NONCE], plain, header)

    def open(self, raw: bytes, sender: int, count: int) -> bytes | Refusal:
        """What was sealed; `sender` and `count` as read from the header. Before the key is put to work it is looked up
        whether the number can be new; what is remembered of a sender begins with its first authentic datagram."""
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
        """What was sealed, without taking note of it; None if it was not made with this key."""
        try:
            return self._aead.decrypt(raw[_NONCE], raw[HEADER.size :], raw[: HEADER.size])
        except InvalidTag:
            return None

    def speaks_for(self, sender: int, origin: tuple[str, int]) -> bool:
        """Name and incarnation that a sender has given inside: the same ones as before, under the same number?"""
        return self._origins.setdefault(sender, origin) == origin


def label_of(topic: str, secret: bytes) -> bytes:
    """What names a group's secret in the header. It tells nothing about the secret."""
    return expand(secret, b"saps ofm label " + topic.encode())[:LABEL]


def mark_of(raw: bytes) -> bytes:
    """Header and tag of a sealed datagram: who sends one knows it again by these when it comes back. They cannot be
    made for another content, and one that is told twice is told by its count."""
    return raw[: HEADER.size] + raw[-TAG:]


def first_count(incarnation: int) -> int:
    """The number before the first that a life of a broker gives (its incarnation: milliseconds since 1970)."""
    return incarnation << LONGEST_LIFE & (1 << 64) - 1
