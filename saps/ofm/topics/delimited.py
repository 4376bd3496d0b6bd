"""The delimited code, the default: for each level, the number among the siblings in Elias' delta code (Elias 1975).

Each number delimits itself and contains a 1. This has three consequences:

- The topics below a topic are exactly the words that begin with its code.
- Zeros behind a code are not a number and make no other topic.
- A new topic changes no code.

The 10,000th sibling takes 20 bits.
"""

from __future__ import annotations

from saps.ofm.topics.coding import fitting, padded
from saps.ofm.topics.tree import TopicTree, father_of


def gamma(number: int) -> str:
    """Return Elias' gamma code of a number from 1: as many zeros as it has bits after the first, then its bits."""
    bits = f"{number:b}"
    return "0" * (len(bits) - 1) + bits


def delta(number: int) -> str:
    """Return Elias' delta code of a number from 1: the gamma code of its bit length, then the bits after the first."""
    bits = f"{number:b}"
    return gamma(len(bits)) + bits[1:]


def numbers(bits: str) -> list[tuple[int, int]]:
    """Return the numbers in a code, or in a word with the zeros behind its code, each with the position of its end.
    Raises `ValueError` for bits that are neither."""
    found, at = [], 0
    while "1" in bits[at:]:
        # Gamma code of the bit length: `zeros` zeros, then `zeros` + 1 bits. The number follows without its first 1.
        zeros = bits.index("1", at) - at
        length = int(bits[at + zeros : at + 2 * zeros + 1], 2)
        end = at + 2 * zeros + length
        if end > len(bits):
            raise ValueError(f"a number is cut off: {bits[at:]}")
        found.append((int("1" + bits[at + 2 * zeros + 1 : end], 2), end))
        at = end
    return found


class DelimitedCode:
    """The delimited code of a tree (a `TopicCode`)."""

    name = "delimited"

    def __init__(self, tree: TopicTree) -> None:
        self.tree = tree

    def code(self, topic: str) -> str:
        bits: list[str] = []
        at: str | None = topic
        while at is not None:
            bits.append(delta(self.tree.number(at)))
            at = father_of(at)
        return "".join(reversed(bits))

    def word(self, topic: str) -> str:
        return padded(topic, self.code(topic))

    def subtree(self, topic: str) -> str:
        return fitting(topic, self.code(topic))

    def father(self, code: str) -> str:
        ends = numbers(code)
        return code[: ends[-2][1]] if len(ends) > 1 else ""

    def covers(self, one: str, other: str) -> bool:
        return one != other and other.startswith(one)
