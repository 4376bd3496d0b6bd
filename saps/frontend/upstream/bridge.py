"""What a bridge forwards, and how it knows a message that has been here before.

Every bridge has an id. A message that crosses one, either way, carries its id in the user property `MARK` from then
on (MQTT 5.0, 3.3.2.3.7), and no bridge lets a message with its own id pass. So a message and all its copies cross
each bridge once at most, whatever lies behind the bridges, and every loop ends: provided that user properties survive.
Where they do not (MQTT 3.1.1), `Echoes` recognises a copy by its content, within a window of time.

A bridge never sees its own imports again as exports, nor, with MQTT 5.0, its own exports as imports: the
subscriptions on both sides are no-local (3.8.3.1). The drivers see to that.
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
"""The user property with the ids of the bridges a message has crossed, in order, joined by spaces."""
MAX_HOPS = 64
"""Bridges a message may cross; a longer path is a forgery or a fault."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def id_fault(bridge_id: str) -> str | None:
    """Why `bridge_id` cannot be the id of a bridge, or None if it can. The empty text stands for the default."""
    if bridge_id and _ID.fullmatch(bridge_id) is None:
        return f"{bridge_id!r} must be 1 to 64 letters, digits, '.', '_' or '-'"
    return None


class Refusal(Enum):
    """Why a message is not forwarded."""

    UNMAPPED = "no mapping has its topic"
    LOOPED = "it has crossed this bridge before, or far too many"
    ECHO = "it is equal to a message that crossed within the echo window"


class Bridge:
    """Decides for one broker and one upstream. No I/O; `now` in seconds on any steady clock."""

    def __init__(self, bridge_id: str, mappings: Sequence[Mapping], echo_window: float = 0.0) -> None:
        """`bridge_id`: unlike that of any other bridge messages can reach. `echo_window`: as for `Echoes`."""
        self.id = bridge_id
        self.mappings = tuple(mappings)
        self.echoes = Echoes(echo_window)
        self.forwarded_in = 0
        self.forwarded_out = 0
        self.refused = dict.fromkeys(Refusal, 0)

    def inward(self, message: Message, now: float) -> Message | Refusal:
        """A message of the upstream, as it is to be published in the mesh; or why not."""
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
        """A message of the mesh, as it is to be published at the upstream; or why not.

        An equal message is an echo only if it came into the mesh by another bridge: what the mesh's own clients publish
        is never held back.
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
    """The ids of the bridges that the message has crossed."""
    if message.properties is None:
        return ()
    return tuple(hop for name, value in message.properties.user if name == MARK for hop in value.split())
