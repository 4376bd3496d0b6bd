"""The trace of a message: the W3C Trace Context in its user property ``traceparent``, and the sampling of new traces.

The property's name comes from the W3C note "Trace Context: MQTT protocol". A broker never alters a publisher's property
(MQTT 5.0, 3.3.2.3.7), so the property cannot name the broker that has the message now. Instead every broker can compute
the identifier of another broker's span (`Context.at`). A broker thus knows the parent of its own span by the name of
the broker that sent the message.
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
    """A ``traceparent``: a trace, and the span in it that published the message."""

    trace: int
    """Identifier of the trace: 128 bits, not 0."""
    span: int
    """Identifier of the publishing span: 64 bits, not 0."""
    sampled: bool = True
    """Whether the originator of the trace records it."""

    @classmethod
    def parse(cls, text: str) -> Context | None:
        """Return the context in the value of a ``traceparent``, or None if the value is invalid (W3C Trace Context,
        3.2). Of later versions, only the fields known here are used (4.3)."""
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        version, trace, span, flags, rest = found.groups()
        if version == "ff" or (version == "00" and rest) or not int(trace, 16) or not int(span, 16):
            return None
        return cls(int(trace, 16), int(span, 16), bool(int(flags, 16) & _SAMPLED))

    @classmethod
    def new(cls, rng: Random) -> Context:
        """Return the context of a new trace, with random identifiers."""
        return cls(rng.getrandbits(128) or 1, rng.getrandbits(64) or 1)

    def __str__(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-{int(self.sampled):02x}"

    def at(self, broker: str) -> int:
        """Return the identifier of the span at `broker`, by its name, which passed the message on. Every broker
        computes the same."""
        digest = blake2b(f"{self.trace:032x}{self.span:016x}{broker}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) or 1


def given(properties: Properties | None) -> bool:
    """Return whether the publisher has set a ``traceparent``, valid or not."""
    return properties is not None and any(name == PROPERTY for name, _ in properties.user)


def carried(properties: Properties | None) -> Context | None:
    """Return the trace context in which to record a message. None if the properties have no ``traceparent``, several
    or an invalid one, or the trace is not sampled."""
    if properties is None or not properties.user:
        return None
    values = [value for name, value in properties.user if name == PROPERTY]
    context = Context.parse(values[0]) if len(values) == 1 else None
    return context if context is not None and context.sampled else None


def carrying(properties: Properties | None, context: Context) -> Properties:
    """Return the properties with a context added after the publisher's user properties."""
    properties = properties or Properties()
    return msgspec.structs.replace(properties, user=(*properties.user, (PROPERTY, str(context))))


class Sampler:
    """Chooses at random a share of the messages to begin traces. Costs one subtraction for each batch without a sampled
    message."""

    def __init__(self, share: float, rng: Random) -> None:
        """`share`: probability that a message is sampled, 0 to 1."""
        self._share = share
        self._rng = rng
        self._left = self._gap()

    def among(self, count: int) -> list[int]:
        """Return the indices, from 0, of the messages to sample among the next `count` messages."""
        found: list[int] = []
        place = self._left
        while place <= count:
            found.append(place - 1)
            place += self._gap()
        self._left = place - count
        return found

    def _gap(self) -> int:
        """Draw the number of messages up to and including the next sampled one (geometric distribution)."""
        if self._share <= 0:
            return _NEVER
        if self._share >= 1:
            return 1
        return 1 + int(math.log(1 - self._rng.random()) / math.log1p(-self._share))
