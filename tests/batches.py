"""Batches and frames for tests."""

from __future__ import annotations

from collections.abc import Sequence

from saps.messages import Message, Properties
from saps.overlay.frames.delivery import Part, Publish
from saps.routing.batch import Batch


def batch_of(messages: Sequence[Message]) -> Batch:
    """These messages, of one quality of service and retain flag, as one batch."""
    numbers: dict[str, int] = {}
    which = [numbers.setdefault(message.topic, len(numbers)) for message in messages]
    properties = [message.properties for message in messages]
    payloads = [message.payload for message in messages]
    first = messages[0]
    some = any(each is not None for each in properties)
    return Batch(list(numbers), which, payloads, first.qos, first.retain, properties if some else None)


def frame(
    topic: str,
    seq: int,
    prev: int = 0,
    payload: bytes = b"",
    qos: int = 1,
    *,
    origin: int = 0,
    slice: int = 0,
    token: int = 0,
    retain: bool = False,
    properties: Properties | None = None,
) -> Publish:
    """The frame with one publication."""
    described, given = ([], []) if properties is None else ([properties], [1])
    return Publish(origin, slice, token, qos, retain, [Part(topic, prev)], [0], [seq], [payload], described, given)
