"""The agent of retained messages: each broker answers for the retained messages that it stores for the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, Protocol

import msgspec

from saps.agents.api import repeatable
from saps.messages import Message, stamp_of
from saps.operations.values import MessageRow, shown

RETAINED = "retained"
"""Name of the agent at each broker; it needs no key in the overlay."""
MOST = 1000
"""Most messages in one answer."""
STAMP_MS = 22
"""Low bits of a stamp, below its milliseconds since 1970 (`saps.overlay.retained.publisher`)."""


class RetainedRow(MessageRow, frozen=True, kw_only=True):
    """One retained message."""

    stamp: int
    """Orders the publications of a topic; the latest has the greatest stamp."""
    at: float
    """Time of the publication in seconds since 1970."""
    broker: str
    """The broker at which the message was published."""


class RetainedList(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``/v1/retained``."""

    complete: bool
    """Whether all brokers have answered."""
    more: bool
    """Whether there are more messages after the last one."""
    messages: list[RetainedRow]
    """The messages by topic."""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A retained message that has been deleted."""

    topic: str


class Record(Protocol):
    """A retained message as the overlay keeps it (`saps.overlay.frames.calls.Record`)."""

    @property
    def message(self) -> Message: ...

    @property
    def expires(self) -> int:
        """Expiry in milliseconds since 1970; 0 for never."""

    @property
    def origin(self) -> Any: ...


class RetainedAgent:
    """The agent ``!retained`` of one broker."""

    def __init__(self, matching: Callable[[str], Iterable[Record]], wall: Callable[[], float]) -> None:
        """`matching` returns the messages stored here that match a topic filter. `wall` returns seconds since 1970."""
        self._matching = matching
        self._wall = wall

    @repeatable
    def browse(self, topic_filter: str, after: str, most: int) -> Any:
        """Return the first `most` matching messages after the topic `after`, by topic, as plain values of
        `RetainedRow`."""
        now = self._wall()
        found = [
            record
            for record in self._matching(topic_filter)
            if record.message.payload and record.message.topic > after and not 0 < record.expires <= now * 1000
        ]
        first = nsmallest(max(0, min(most, MOST)), found, key=lambda record: record.message.topic)
        return msgspec.to_builtins([self._row(record, now) for record in first])

    @staticmethod
    def _row(record: Record, now: float) -> RetainedRow:
        message, stamp = record.message, stamp_of(record.message)
        return RetainedRow(
            topic=message.topic,
            qos=message.qos,
            retain=True,
            size=len(message.payload),
            text=shown(message.payload),
            expires=round(record.expires / 1000 - now, 1) if record.expires else None,
            stamp=stamp,
            at=round((stamp >> STAMP_MS) / 1000, 3),
            broker=record.origin.name,
        )


def latest(rows: Iterable[RetainedRow], most: int) -> list[RetainedRow]:
    """Return the latest message of each topic among several brokers' rows: the first `most`, by topic."""
    found: dict[str, RetainedRow] = {}
    for row in rows:
        if row.topic not in found or found[row.topic].stamp < row.stamp:
            found[row.topic] = row
    return [found[topic] for topic in sorted(found)][:most]
