"""What a frame carries for clients, against what clients may be given: topics, filters and texts as MQTT has them.

Whoever encodes a message for a client relies on it. A decoder has seen to the numbers
(`saps.overlay.validation.ranges`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from saps.messages import Message, Properties
from saps.overlay.delivery.publications import fault
from saps.overlay.frames.calls import (
    Announce,
    Body,
    Broadcast,
    Gathered,
    Inherit,
    Interest,
    Keep,
    Locate,
    Result,
    Stored,
    Unsettled,
)
from saps.overlay.frames.copies import Changes
from saps.overlay.frames.delivery import GroupDelivery, HighWater, MadeUp, Publish, WantedFilters
from saps.overlay.frames.sessions import Append, Bequest, Guard
from saps.topics import subscription_fault, topic_fault

MEMORABLE = 256
"""Characters of the longest topic of which it is remembered that it is sound: 65,536 of them then take some MiB."""
LONGEST_TEXT = 0xFFFF
"""Bytes (MQTT 5.0, section 1.5.4)."""


def topic_unsound(topic: str) -> str | None:
    """Why nobody can have published to it, or None."""
    return _remembered(topic) if len(topic) <= MEMORABLE else topic_fault(topic)


_remembered = lru_cache(maxsize=1 << 16)(topic_fault)


def properties_unsound(properties: Properties) -> str | None:
    """Why no client can be given them, or None."""
    texts = [properties.content_type or "", properties.response_topic or ""]
    texts += [text for pair in properties.user for text in pair]
    if any("\0" in text or len(text.encode()) > LONGEST_TEXT for text in texts):
        return "a property with a text that MQTT cannot carry"
    if properties.response_topic is not None and (fault := topic_fault(properties.response_topic)) is not None:
        return fault
    if len(properties.correlation_data or b"") > LONGEST_TEXT:
        return "correlation data that MQTT cannot carry"
    return None


def message_unsound(message: Message) -> str | None:
    """Why it is no message, or None."""
    return carried_unsound(message.topic, message.properties)


def carried_unsound(topic: str, properties: Properties | None) -> str | None:
    """The same for its parts."""
    fault = topic_unsound(topic)
    return properties_unsound(properties) if fault is None and properties is not None else fault


def _first(faults: Iterable[str | None]) -> str | None:
    return next((fault for fault in faults if fault is not None), None)


def _body(body: Body) -> str | None:
    if isinstance(body, Announce):
        return _first(subscription_fault(each.topic_filter) for each in body.filters)
    if isinstance(body, Keep):
        return _first(message_unsound(record.message) for record in body.records)
    if isinstance(body, Unsettled | Inherit):
        return _first(map(subscription_fault, body.topic_filters))
    return None


def _result(result: Result) -> str | None:
    if isinstance(result, Interest):
        return subscription_fault(result.topic_filter)
    if isinstance(result, Stored):
        return _first(message_unsound(record.message) for record in result.records)
    return None


def publish_unsound(frame: Publish) -> str | None:
    """Why nobody can have published what it carries, or None."""
    found = fault(frame)
    for part in frame.parts:
        found = found or topic_unsound(part.topic)
    for properties in frame.properties:
        found = found or properties_unsound(properties)
    return found


def changes_unsound(changes: Changes) -> str | None:
    """Why no session can have changed so, or None."""
    found = _first(subscription_fault(subscription.filter) for subscription in changes.subscriptions)
    return found or _first(message_unsound(copy.message) for copy in changes.messages)


UNSOUND: dict[type, Callable[[Any], str | None]] = {
    Publish: publish_unsound,
    GroupDelivery: lambda frame: carried_unsound(frame.topic, frame.properties),
    HighWater: lambda frame: topic_unsound(frame.topic),
    Guard: lambda frame: _first(message_unsound(will.message) for will in frame.wills),
    Locate: lambda frame: _body(frame.body),
    Broadcast: lambda frame: _body(frame.body),
    Gathered: lambda frame: _first(map(_result, frame.results)),
    Append: lambda frame: changes_unsound(frame.changes),
    Bequest: lambda frame: publish_unsound(frame.body),
    WantedFilters: lambda frame: _first(subscription_fault(wanted.topic_filter) for wanted in frame.filters),
    MadeUp: lambda frame: _first(map(publish_unsound, frame.bodies)),
}
"""For the frames that carry something for clients: why what they carry is no good, or None."""
