"""Runs of plain publications: what a busy publisher sends, cut into packets with few steps for each.

A publication is plain if it is a PUBLISH of QoS 0 or 1, not retained, not a duplicate, and without properties.
"""

from __future__ import annotations

from typing import NamedTuple

from saps.frontend.mqtt.packets import V5


class First(NamedTuple):
    """The first packet of a run: where its topic field is."""

    topic: int
    """Where the topic field begins (its length, in two bytes)."""
    end: int
    """Where the topic field ends."""


def first_packet(data: bytes, pos: int) -> First | None:
    """The PUBLISH at `pos`, if its header and its topic are there and its remaining length has at most two bytes."""
    size = len(data)
    if pos + 5 > size:
        return None
    topic = pos + 2 if data[pos + 1] < 0x80 else pos + 3
    end = topic + 2 + (data[topic] << 8 | data[topic + 1])
    return First(topic, end) if end <= size else None


def lone_publication(data: bytes, version: int) -> int:
    """Where the topic field ends, if the data is one plain publication from its first to its last byte; else 0.

    The first byte of the data is that of a plain publication.
    """
    size = len(data)
    if size < 5:
        return 0
    length, topic = data[1], 2
    if length > 0x7F:
        high = data[2]
        if not 0 < high < 0x80:
            return 0
        length += (high << 7) - 0x80
        topic = 3
    end = topic + 2 + (data[topic] << 8 | data[topic + 1])
    payload = end + (version == V5) + (data[0] & 0x02)
    if topic + length != size or payload > size:
        return 0
    if data[0] & 0x02 and not (data[end] or data[end + 1]):
        return 0
    return 0 if version == V5 and data[payload - 1] else end


def plain_run(data: bytes, pos: int, first: First, version: int, limit: int) -> list[int]:
    """Where the plain publications from `pos` on end that have the first byte and the topic of the first packet.

    Empty if already the first is not plain, not complete, or larger than `limit` bytes. Packets of QoS 1 have a packet
    identifier other than 0.
    """
    size, kind = len(data), data[pos]
    numbered, bare = kind == 0x32, version == V5
    field = data[first.topic : first.end]
    ahead = len(field) + 2 * numbered + bare  # from the topic field to the payload
    ends: list[int] = []
    while pos + 5 <= size and data[pos] == kind:
        length, body = data[pos + 1], pos + 2
        if length > 0x7F:
            high = data[body]
            if not 0 < high < 0x80:
                break
            length += (high << 7) - 0x80
            body += 1
        end, payload = body + length, body + ahead
        if end > size or payload > end or end - pos > limit or not data.startswith(field, body):
            break
        if bare and data[payload - 1]:  # it has properties
            break
        if numbered:
            tail = body + len(field)
            if not (data[tail] or data[tail + 1]):
                break
            ends.append(end)
            pos = end
            continue
        ends.append(end)
        same = data[pos:payload]
        pos, end = end, end + end - pos
        while end <= size and data.startswith(same, pos):  # of the same size, too: one comparison for each
            ends.append(end)
            pos, end = end, end + end - pos
    return ends
