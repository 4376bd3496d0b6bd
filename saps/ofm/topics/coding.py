"""What every code of topics has in common: binary topic expressions, and the words of 101 bits that addresses hold.

Bits are texts of ``0`` and ``1``, the first one first.
"""

from __future__ import annotations

from typing import Protocol

from saps.ofm.topics.tree import TopicTree

WORD_BITS = 101
"""Of the 103 code bits in an IPv6 multicast address, two are the event type (SDNPS 2016, 3.2 and Figure 3)."""


class CodeTooLongError(ValueError):
    """A topic has no address: its code needs more bits than there are."""

    def __init__(self, topic: str, bits: int) -> None:
        super().__init__(f"{topic!r} needs {bits} code bits, there are {WORD_BITS}")


class TopicCode(Protocol):
    """A binary code of the topics of a tree."""

    name: str
    tree: TopicTree

    def code(self, topic: str) -> str:
        """The topic expression, of any length. Raises `KeyError` for a topic that is not in the tree."""

    def word(self, topic: str) -> str:
        """What the address of the topic's own events holds: `WORD_BITS` bits. Raises `CodeTooLongError`."""

    def subtree(self, topic: str) -> str:
        """The prefix of words by which a switch is to know the topic and all that it covers. It is exact in a code of
        ours; in the published one it is what the paper says. Raises `CodeTooLongError`."""

    def father(self, code: str) -> str:
        """The topic expression of the father, empty for the root. `code` must be one of a topic."""

    def covers(self, one: str, other: str) -> bool:
        """Does the topic with the one expression stand above the topic with the other?"""


def fitting(topic: str, bits: str) -> str:
    """The bits, as they are. Raises `CodeTooLongError`."""
    if len(bits) > WORD_BITS:
        raise CodeTooLongError(topic, len(bits))
    return bits


def padded(topic: str, bits: str) -> str:
    """The bits, filled up with zeros to a word. Raises `CodeTooLongError`."""
    return fitting(topic, bits).ljust(WORD_BITS, "0")
