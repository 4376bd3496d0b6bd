"""Which trace a message belongs to: the W3C Trace Context in its user property ``traceparent``.

The name is that of W3C's note "Trace Context: MQTT protocol". A property that a publisher has given is never altered
(MQTT 5.0, 3.3.2.3.7), so it cannot say at which broker the message is now. Instead each broker's span has an identifier
that everybody can work out: `Context.at`. So the next broker knows its parent by the name of who sent it the message.
"""

from __future__ import annotations

import math
import re
from hashlib import blake2b
from random import Random
from typing import NamedTuple

import msgspec

from saps.messages import Properties

PROPERTY = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED = 1
_NEVER = 1 << 62


class Context(NamedTuple):
    """A ``traceparent``: a trace, and the span in it that has published the message."""

    trace: int
    """128 bits, not 0."""
    span: int
    """64 bits, not 0."""
    sampled: bool = True
    """Whoever began the trace records it."""

    @classmethod
    def parse(cls, text: str) -> Context | None:
        """None if it is none (W3C Trace Context, 3.2). Of later versions what is known of this one is taken (4.3)."""
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        version, trace, span, flags, rest = found.groups()
        if version == "ff" or (version == "00" and rest) or not int(trace, 16) or not int(span, 16):
            return None
        return cls(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))

    @classmethod
    def new(cls, rng: Random) -> Context:
        """A new trace."""
        return cls(rng.getrandbits(128) or 1, rng.getrandbits(64) or 1)

    def __str__(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-{int(self.sampled):02x}"

    def at(self, broker: str) -> int:
        """The identifier of the span that has passed the message on at a broker."""
        digest = blake2b(f"{self.trace:032x}{self.span:016x}{broker}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) or 1


def given(properties: Properties | None) -> bool:
    """Has the publisher said something of a trace?"""
    return properties is not None and any(name == PROPERTY for name, _ in properties.user)


def carried(properties: Properties | None) -> Context | None:
    """The trace that the message is to be recorded in; None if none: there is no property, or one that makes no sense,
    or several, or its trace is not recorded."""
    if properties is None or not properties.user:
        return None
    values = [value for name, value in properties.user if name == PROPERTY]
    context = Context.parse(values[0]) if len(values) == 1 else None
    return context if context is not None and context.sampled else None


def carrying(properties: Properties | None, context: Context) -> Properties:
    """The properties with a context, behind the publisher's own user properties."""
    properties = properties or Properties()
    return msgspec.structs.replace(properties, user=(*properties.user, (PROPERTY, str(context))))


class Sampler:
    """Says which messages begin a trace: a share of them, by chance, at the cost of a subtraction for each batch."""

    def __init__(self, share: float, rng: Random) -> None:
        """`share`: 0 to 1."""
        self._share = share
        self._rng = rng
        self._left = self._gap()

    def among(self, count: int) -> list[int]:
        """Which of the next `count` messages are to be sampled: their places."""
        found: list[int] = []
        place = self._left
        while place <= count:
            found.append(place - 1)
            place += self._gap()
        self._left = place - count
        return found

    def _gap(self) -> int:
        """Messages up to the next one that is sampled, this one included: geometrically distributed."""
        if self._share <= 0:
            return _NEVER
        if self._share >= 1:
            return 1
        return 1 + int(math.log(1 - self._rng.random()) / math.log1p(-self._share))
