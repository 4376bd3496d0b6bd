"""Decides which messages a bridge forwards, and detects messages that have crossed it before.

Every bridge has an id. A message that crosses a bridge in either direction carries the id in the user property `MARK`
from then on (MQTT 5.0, 3.3.2.3.7). A bridge refuses messages with its own id. A message and all its copies therefore
cross each bridge at most once, and every loop ends, as long as user properties survive. Where they do not
(MQTT 3.1.1), `Echoes` recognises a copy by its content within a time window.

A bridge never receives its own imports as exports. With MQTT 5.0, it never receives its own exports as imports either.
The reason is that the drivers subscribe on both sides with no-local (3.8.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

import msgspec

from saps.frontend.upstream.echoes import Echoes
from saps.frontend.upstream.mapping import Mapping, to_mesh, to_upstream
from saps.messages import Message, Properties

MARK = "saps-path"
"""User property with the ids of the bridges that a message has crossed, in order, joined by spaces."""
MAX_HOPS = 64
"""Most bridges that a message may cross; a longer path is forged or faulty."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def id_fault(bridge_id: str) -> str | None:
    """Return why `bridge_id` cannot be the id of a bridge, or None if it can. An empty id means the default and is
    valid."""
    if bridge_id and _ID.fullmatch(bridge_id) is None:
        return f"{bridge_id!r} must be 1 to 64 letters, digits, '.', '_' or '-'"
    return None


class Refusal(Enum):
    """The reason why a bridge does not forward a message."""

    UNMAPPED = "no mapping has its topic"
    LOOPED = "it has crossed this bridge before, or far too many"
    ECHO = "it is equal to a message that crossed within the echo window"


class Bridge:
    """Decides which messages cross between one broker and one upstream, and counts them. Pure: `now` is in seconds on
    any monotonic clock."""

    def __init__(self, bridge_id: str, mappings: Sequence[Mapping], echo_window: float = 0.0) -> None:
        """`bridge_id`: must be unique among all bridges that messages can reach. `mappings`: must have no
        `saps.frontend.upstream.mapping.maps_fault`. `echo_window`: seconds, 0 to disable (`Echoes`)."""
        self.id = bridge_id
        self.mappings = tuple(mappings)
        self.echoes = Echoes(echo_window)
        self.forwarded_in = 0
        self.forwarded_out = 0
        self.refused = dict.fromkeys(Refusal, 0)

    def inward(self, message: Message, now: float) -> Message | Refusal:
        """Decide on a message from the upstream. Returns the message to publish in the mesh, or the refusal."""
        mapped = to_mesh(self.mappings, message.topic)
        if mapped is None:
            return self._refuse(Refusal.UNMAPPED)
        path = path_of(message)
        if self.id in path or len(path) >= MAX_HOPS:
            return self._refuse(Refusal.LOOPED)
        if self.echoes.went_out(mapped.topic, message.payload, now):
            return self._refuse(Refusal.ECHO)
        self.echoes.crossed(mapped.topic, message.payload, False, now)
        self.forwarded_in += 1
        return self._forwarded(message, mapped.topic, mapped.mapping, path)

    def outward(self, message: Message, now: float) -> Message | Refusal:
        """Decide on a message from the mesh. Returns the message to publish at the upstream, or the refusal.

        A message can be an echo only if it came into the mesh through another bridge. Publications of the mesh's own
        clients are never refused as echoes.
        """
        mapped = to_upstream(self.mappings, message.topic)
        if mapped is None:
            return self._refuse(Refusal.UNMAPPED)
        path = path_of(message)
        if self.id in path or len(path) >= MAX_HOPS:
            return self._refuse(Refusal.LOOPED)
        if path and self.echoes.passed(message.topic, message.payload, now):
            return self._refuse(Refusal.ECHO)
        self.echoes.crossed(message.topic, message.payload, True, now)
        self.forwarded_out += 1
        return self._forwarded(message, mapped.topic, mapped.mapping, path)

    def _forwarded(self, message: Message, topic: str, mapping: Mapping, path: tuple[str, ...]) -> Message:
        properties = message.properties or Properties()
        user = tuple(pair for pair in properties.user if pair[0] != MARK)
        marked = msgspec.structs.replace(properties, user=(*user, (MARK, " ".join((*path, self.id)))))
        qos = min(message.qos, mapping.qos)
        return Message(topic, message.payload, qos, message.retain and mapping.retain, marked)

    def _refuse(self, why: Refusal) -> Refusal:
        self.refused[why] += 1
        return why


def path_of(message: Message) -> tuple[str, ...]:
    """Return the ids of the bridges that a message has crossed, in order."""
    if message.properties is None:
        return ()
    return tuple(hop for name, value in message.properties.user if name == MARK for hop in value.split())
