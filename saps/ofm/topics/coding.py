"""Defines what all codes of topics share: binary topic expressions, and the words of 101 bits in addresses.

Bits are texts of ``0`` and ``1``, most significant first.
"""

from __future__ import annotations

from typing import Protocol

from saps.ofm.topics.tree import TopicTree

WORD_BITS = 101
"""Bits of a word. Of the 103 code bits in an IPv6 multicast address, two are the event type (SDNPS 2016, 3.2 and Figure
3)."""


class CodeTooLongError(ValueError):
    """A topic without an address: its code needs more than `WORD_BITS` bits."""

    def __init__(self, topic: str, bits: int) -> None:
        super().__init__(f"{topic!r} needs {bits} code bits, there are {WORD_BITS}")


class TopicCode(Protocol):
    """A binary code of the topics of a tree."""

    name: str
    tree: TopicTree

    def code(self, topic: str) -> str:
        """Return the topic expression, of any length. Raises `KeyError` for a topic that is not in the tree."""

    def word(self, topic: str) -> str:
        """Return the word in the address of the topic's own events, `WORD_BITS` bits long. Raises
        `CodeTooLongError`."""

    def subtree(self, topic: str) -> str:
        """Return the prefix of words by which a switch matches the topic and all that it covers. It is exact in the
        delimited code; in the published one it is what the paper says. Raises `CodeTooLongError`."""

    def father(self, code: str) -> str:
        """Return the topic expression of the father, empty for the root. `code` must be the expression of a topic."""

    def covers(self, one: str, other: str) -> bool:
        """Return whether the topic with the expression `one` stands above the topic with the expression `other`."""


def fitting(topic: str, bits: str) -> str:
    """Return the bits unchanged. Raises `CodeTooLongError` if they do not fit a word."""
    if len(bits) > WORD_BITS:
        raise CodeTooLongError(topic, len(bits))
    return bits


def padded(topic: str, bits: str) -> str:
    """Return the bits, padded with zeros to a word. Raises `CodeTooLongError` if they do not fit."""
    return fitting(topic, bits).ljust(WORD_BITS, "0")
