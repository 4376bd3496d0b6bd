"""Recorded traffic as a file: JSON lines, compressed by xz. Pure, but for reading and writing the file.

The first line is the header, ``{"saps_tape": 1, "note": ..., "filters": [...]}``; every other line is a message,
``[milliseconds, topic, qos, retain, payload]``, in the order in which the messages came. A payload that is not UTF-8 is
``{"base64": ...}``.
"""

from __future__ import annotations

import lzma
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

VERSION = 1
MOST = 1_000_000
"""Messages of a tape: it is kept in memory as a whole."""


class TapeError(Exception):
    """The file is no tape. The text says why."""


class Header(msgspec.Struct, frozen=True):
    """What the tape is of."""

    saps_tape: int
    note: str
    filters: list[str]


class Recorded(msgspec.Struct, frozen=True):
    """One message."""

    at: float
    """Seconds since the first message."""
    topic: str
    qos: int
    retain: bool
    payload: bytes


@dataclass(frozen=True)
class Tape:
    """A recording."""

    note: str
    filters: list[str]
    messages: list[Recorded] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From the beginning to the last message."""
        return self.messages[-1].at if self.messages else 0.0

    @property
    def topics(self) -> Counter[str]:
        """Messages by topic."""
        return Counter(message.topic for message in self.messages)

    def until(self, seconds: float) -> Tape:
        """The beginning of it."""
        return Tape(self.note, self.filters, [each for each in self.messages if each.at <= seconds])


class _Base64(msgspec.Struct, frozen=True):
    base64: str


_Line = tuple[int, str, int, bool, str | _Base64]


def write(tape: Tape, file: Path) -> None:
    """Write it, whole or not at all."""
    lines = [msgspec.json.encode(Header(VERSION, tape.note, tape.filters))]
    lines += [
        msgspec.json.encode((round(each.at * 1000), each.topic, each.qos, each.retain, _shown(each.payload)))
        for each in tape.messages
    ]
    beside = file.with_name(file.name + ".part")
    beside.write_bytes(lzma.compress(b"\n".join(lines) + b"\n", preset=6))
    beside.replace(file)


def load(file: Path) -> Tape:
    """Read it. Raises `TapeError` if it is no tape, `OSError` if it cannot be read."""
    try:
        with lzma.open(file) as lines:
            header = msgspec.json.decode(lines.readline(), type=Header)
            if header.saps_tape != VERSION:
                raise TapeError(f"{file}: a tape of version {header.saps_tape}; this program reads {VERSION}")
            return Tape(header.note, header.filters, _messages(lines, file))
    except (lzma.LZMAError, EOFError, msgspec.DecodeError, ValueError) as error:
        raise TapeError(f"{file}: no tape: {error}") from None


def _messages(lines: Iterable[bytes], file: Path) -> list[Recorded]:
    decoder, found = msgspec.json.Decoder(_Line), list[Recorded]()
    for line in lines:
        if len(found) == MOST:
            raise TapeError(f"{file}: more than {MOST:,} messages")
        at, topic, qos, retain, payload = decoder.decode(line)
        data = payload.encode() if isinstance(payload, str) else b64decode(payload.base64)
        found.append(Recorded(at / 1000, topic, qos, retain, data))
    return found


def _shown(payload: bytes) -> str | _Base64:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return _Base64(b64encode(payload).decode())
