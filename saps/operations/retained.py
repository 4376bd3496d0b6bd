"""The agent of retained messages: each broker answers for those that it keeps for the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, Protocol

import msgspec

from saps.agents.api import repeatable
from saps.messages import Message, stamp_of
from saps.operations.values import MessageRow, shown

RETAINED = "retained"
"""Name of each broker's agent; it costs the overlay no key."""
MOST = 1000
"""Messages in one answer."""
STAMP_MS = 22
"""Bits of a stamp below its milliseconds since 1970 (`saps.overlay.retained.publisher`)."""


class RetainedRow(MessageRow, frozen=True, kw_only=True):
    """One retained message."""

    stamp: int
    """The greatest of a topic is the last."""
    at: float
    """When it was published, in seconds since 1970."""
    broker: str
    """Where."""


class RetainedList(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of ``/v1/retained``."""

    complete: bool
    """All brokers have answered."""
    more: bool
    """There are more behind the last one."""
    messages: list[RetainedRow]
    """By topic."""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A retained message that is no more."""

    topic: str


class Record(Protocol):
    """A retained message, as the overlay keeps it."""

    @property
    def message(self) -> Message: ...

    @property
    def expires(self) -> int:
        """Milliseconds since 1970; 0: never."""

    @property
    def origin(self) -> Any: ...


class RetainedAgent:
    """Answers for one broker."""

    def __init__(self, matching: Callable[[str], Iterable[Record]], wall: Callable[[], float]) -> None:
        """`matching`: what is kept here and matches a filter. `wall`: seconds since 1970."""
        self._matching = matching
        self._wall = wall

    @repeatable
    def browse(self, topic_filter: str, after: str, most: int) -> Any:
        """The first so many `RetainedRow` as plain values, by topic, behind the topic `after`."""
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
    """Of what several brokers keep the last one of each topic, by topic."""
    found: dict[str, RetainedRow] = {}
    for row in rows:
        if row.topic not in found or found[row.topic].stamp < row.stamp:
            found[row.topic] = row
    return [found[topic] for topic in sorted(found)][:most]
