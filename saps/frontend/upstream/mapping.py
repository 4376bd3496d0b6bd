"""Topic mappings: the topics a bridge forwards, their directions, and their names on the other side.

A mapping is a line as in Mosquitto's bridges (mosquitto.conf(5), "topic"), with the same order of words::

    PATTERN [DIRECTION [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]] [retain=keep|drop]

``sensors/# in 1 site1/ ""`` forwards the upstream's ``sensors/t`` into the mesh as ``site1/sensors/t``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from saps.topics import MAX_TOPIC_BYTES, filter_fault, matches

DIRECTIONS = ("out", "in", "both")
MAX_QOS = 1
"""Highest QoS of a bridge, which delivers at least once: neither side can keep the other's half of a QoS 2 exchange."""
_RETAIN = re.compile(r"retain=(\w+)")


class Mapping(NamedTuple):
    """Maps the topics that match `pattern` after the mesh's prefix to those after the upstream's prefix."""

    pattern: str
    direction: str = "both"
    """``out`` from the mesh to the upstream, ``in`` from the upstream to the mesh, or ``both``."""
    qos: int = MAX_QOS
    """Highest QoS of forwarded messages, 0 or 1."""
    local_prefix: str = ""
    remote_prefix: str = ""
    retain: bool = True
    """Whether a retained message stays retained on the other side."""

    @property
    def local(self) -> str:
        """The topic filter in the mesh."""
        return self.local_prefix + self.pattern

    @property
    def remote(self) -> str:
        """The topic filter at the upstream."""
        return self.remote_prefix + self.pattern

    @property
    def inwards(self) -> bool:
        """Whether messages go from the upstream to the mesh."""
        return self.direction != "out"

    @property
    def outwards(self) -> bool:
        """Whether messages go from the mesh to the upstream."""
        return self.direction != "in"

    @classmethod
    def parse(cls, text: str) -> Mapping:
        """Return the mapping of a line (see the module). Raises `ValueError` that contains the line and its fault."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
        options = [option[1] for word in words if (option := _RETAIN.fullmatch(word))]
        words = [word for word in words if not _RETAIN.fullmatch(word)]
        if not 1 <= len(words) <= 5 or len(options) > 1:
            raise ValueError(
                f"{text!r} is not PATTERN [in|out|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]] [retain=drop]"
            )
        pattern, direction, qos, local, remote = (*words, *("both", str(MAX_QOS), "", "")[len(words) - 1 :])
        if direction not in DIRECTIONS:
            raise ValueError(f"{text!r}: direction {direction!r} must be in, out or both")
        if qos not in ("0", "1"):
            raise ValueError(f"{text!r}: QoS {qos!r} must be 0 or 1: a bridge delivers at least once, not exactly once")
        if options and options[0] not in ("keep", "drop"):
            raise ValueError(f"{text!r}: retain={options[0]} must be retain=keep or retain=drop")
        mapping = cls(pattern, direction, int(qos), local, remote, options != ["drop"])
        if (fault := mapping._fault()) is not None:
            raise ValueError(f"{text!r}: {fault}")
        return mapping

    def _fault(self) -> str | None:
        for prefix in (self.local_prefix, self.remote_prefix):
            if "#" in prefix or "+" in prefix:
                return f"prefix {prefix!r} must not contain wildcards"
        for name in (self.local, self.remote):
            if (fault := filter_fault(name)) is not None:
                return f"filter {name!r}: {fault}"
            if name.startswith("$share/"):
                return "shared subscriptions cannot be forwarded"
        if self.outwards and self.remote.startswith("$"):
            return "topics that begin with $ are the upstream's own; they can only be mapped in"
        if self.inwards and self.local.startswith("$"):
            return "topics that begin with $ are the mesh's own; nothing can be mapped to them"
        return None


class Mapped(NamedTuple):
    """A message's topic on the other side, and the mapping that gave it."""

    topic: str
    mapping: Mapping


def to_mesh(mappings: Iterable[Mapping], topic: str) -> Mapped | None:
    """Map a topic of the upstream to the mesh. Returns None if no mapping forwards it."""
    for mapping in mappings:
        if mapping.inwards and matches(mapping.remote, topic):
            return _renamed(topic, mapping, mapping.remote_prefix, mapping.local_prefix)
    return None


def to_upstream(mappings: Iterable[Mapping], topic: str) -> Mapped | None:
    """Map a topic of the mesh to the upstream. Returns None if no mapping forwards it."""
    for mapping in mappings:
        if mapping.outwards and matches(mapping.local, topic):
            return _renamed(topic, mapping, mapping.local_prefix, mapping.remote_prefix)
    return None


def _renamed(topic: str, mapping: Mapping, old: str, new: str) -> Mapped | None:
    name = new + topic[len(old) :]
    if not name or name.startswith("$") or len(name.encode()) > MAX_TOPIC_BYTES:
        return None  # a client may own ``x/$SYS/y``, but ``$SYS/y`` belongs to the broker
    return Mapped(name, mapping)


def overlap(one: str, other: str) -> bool:
    """Return whether some topic name matches both filters, which must be valid. Topics that begin with ``$`` count
    like all others."""
    a, b = one.split("/"), other.split("/")
    for left, right in zip(a, b, strict=False):
        if "#" in (left, right):
            return True
        if left != right and "+" not in (left, right):
            return False
    shorter, longer = sorted((a, b), key=len)
    return len(a) == len(b) or longer[len(shorter) :] == ["#"]


def maps_fault(mappings: Sequence[Mapping]) -> str | None:
    """Return why these mappings cannot be used together, or None if they can.

    1. Each topic has one name on the other side: two mappings of the same direction must not overlap.
    2. A topic that is mapped in and out again must get its old name back. Otherwise its name would grow with each
       turn through two bridges.
    """
    for i, one in enumerate(mappings):
        for other in mappings[i + 1 :]:
            if one.inwards and other.inwards and overlap(one.remote, other.remote):
                return _clash(one, other, "are both mapped in, and some topic would be forwarded twice")
            if one.outwards and other.outwards and overlap(one.local, other.local):
                return _clash(one, other, "are both mapped out, and some topic would be forwarded twice")
    for inward in (m for m in mappings if m.inwards):
        for outward in (m for m in mappings if m.outwards):
            turns = overlap(inward.local, outward.local) or overlap(inward.remote, outward.remote)
            if turns and not _inverse(inward, outward):
                return _clash(inward, outward, "lead in a circle: what is mapped in would go out under another name")
    return None


def _inverse(inward: Mapping, outward: Mapping) -> bool:
    """Return whether both mappings change names in the same way: their local prefixes and their remote prefixes differ
    at most by the same text at the end."""
    a, b = (inward.local_prefix, inward.remote_prefix), (outward.local_prefix, outward.remote_prefix)
    (short_local, short_remote), (long_local, long_remote) = sorted((a, b), key=lambda pair: len(pair[0]))
    rest = long_local.removeprefix(short_local)
    return long_local.startswith(short_local) and short_remote + rest == long_remote


def _clash(one: Mapping, other: Mapping, what: str) -> str:
    return f"{_named(one)} and {_named(other)} {what}"


def _named(mapping: Mapping) -> str:
    return f"{mapping.pattern!r} (local {mapping.local!r}, remote {mapping.remote!r})"


def mapping_fault(text: str) -> str | None:
    """Return why `text` is not a mapping, or None if it is one."""
    try:
        Mapping.parse(text)
    except ValueError as error:
        return str(error)
    return None
