"""Checks the parts of a frame that are meant for clients: topics, filters and texts must be valid in MQTT.

The encoder of client packets relies on these checks. The frame decoder has checked the numbers before
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
from saps.storage.past import past_fault
from saps.topics import subscription_fault, topic_fault

MEMORABLE = 256
"""Longest topic, in characters, whose check is cached: so a cache of 65,536 topics takes a few MiB."""
LONGEST_TEXT = 0xFFFF
"""Limit of a text or of binary data in bytes (MQTT 5.0, section 1.5.4)."""


def topic_unsound(topic: str) -> str | None:
    """Return why no client can have published to the topic, or None if it is valid."""
    return _remembered(topic) if len(topic) <= MEMORABLE else topic_fault(topic)


_remembered = lru_cache(maxsize=1 << 16)(topic_fault)


def properties_unsound(properties: Properties) -> str | None:
    """Return why no client can be sent these properties, or None if they are valid."""
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
    """Return why the message is not valid in MQTT, or None."""
    return carried_unsound(message.topic, message.properties)


def carried_unsound(topic: str, properties: Properties | None) -> str | None:
    """Return why a message with this topic and these properties is not valid in MQTT, or None."""
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
    """Return why no broker can have published the frame's content, or None if it is valid."""
    found = fault(frame)
    for part in frame.parts:
        found = found or topic_unsound(part.topic)
    for properties in frame.properties:
        found = found or properties_unsound(properties)
    return found


def changes_unsound(changes: Changes) -> str | None:
    """Return why the changes of a session are not valid in MQTT, or None."""
    found = _first(subscription_fault(subscription.filter) for subscription in changes.subscriptions)
    found = found or _first(message_unsound(copy.message) for copy in changes.messages)
    return found or _first(past_fault(had) for _, had in changes.had)


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
    MadeUp: lambda frame: _first(
        [*map(publish_unsound, frame.bodies), *(topic_unsound(each.topic) for each in frame.after)]
    ),
}
"""By type, for all frames with content for clients: a function that returns why the content is invalid, or None."""
