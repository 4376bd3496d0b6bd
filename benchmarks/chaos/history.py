"""The history of a run in a file: every publication, acknowledgement, arrival and fault, to be judged again without it.

A judgement needs nothing else: whoever doubts one, or has another rule, starts from the file.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from pathlib import Path

import msgspec

from benchmarks.chaos.account import Came, Count, Incident, Recorder, Stream


class Published(msgspec.Struct, frozen=True):
    """A stream. The arrays are little-endian doubles, seconds from the beginning of the run, by number from 1."""

    name: str
    broker: str
    qos: int
    handed: bytes
    done: bytes
    """Infinite where no acknowledgement came: whether the mesh has the message is unknown, and it is not owed."""


class Arrived(msgspec.Struct, frozen=True):
    """All that one subscriber got, in order; the arrays are little-endian."""

    name: str
    broker: str
    streams: list[str]
    places: bytes
    """Unsigned 32-bit: each message's stream, by its place in `streams`."""
    numbers: bytes
    """Unsigned 32-bit."""
    times: bytes
    anew: list[float] = []
    """When it found no session where it connected."""


class History(msgspec.Struct, frozen=True):
    """One run's."""

    published: list[Published]
    arrived: list[Arrived]
    incidents: list[Incident]


def write(recorder: Recorder, file: Path) -> None:
    """Save what a recorder with a history knows. Raises `OSError`."""
    came = recorder.history or {}
    published = [
        Published(s.name, s.broker, s.qos, _packed(s.handed), _packed(s.done)) for s in recorder.streams.values()
    ]
    arrived = [
        Arrived(
            name,
            broker,
            list(each.names),
            _packed(each.streams),
            _packed(each.numbers),
            _packed(each.times),
            recorder.anew.get(name, []),
        )
        for name, broker in recorder.brokers.items()
        for each in [came.get(name, Came())]
    ]
    file.write_bytes(msgspec.msgpack.encode(History(published, arrived, recorder.incidents)))


def read(file: Path) -> Recorder:
    """A recorder that has been told all of a file. Raises `OSError`; `ValueError` if the file is no history, or tells
    of a message that nobody published."""
    try:
        history = msgspec.msgpack.decode(file.read_bytes(), type=History)
    except msgspec.DecodeError as error:
        raise ValueError(f"{file} is no history of a run: {error}") from None
    streams = []
    for each in history.published:
        stream = Stream(each.name, each.broker, each.qos)
        stream.handed, stream.done = _unpacked("d", each.handed), _unpacked("d", each.done)
        streams.append(stream)
    recorder = Recorder(streams, ((each.name, each.broker) for each in history.arrived))
    recorder.incidents = history.incidents
    for one in history.arrived:
        anew = deque(one.anew)
        places, numbers = _unpacked("I", one.places), _unpacked("I", one.numbers)
        for place, number, time in zip(places, numbers, _unpacked("d", one.times), strict=True):
            while anew and anew[0] <= time:
                recorder.began_anew(one.name, anew.popleft())
            try:
                recorder.arrived(one.name, one.streams[place], number, time)
            except (KeyError, IndexError):
                raise ValueError(
                    f"{file}: {one.name} got something of a stream {place} that nobody publishes"
                ) from None
        for time in anew:
            recorder.began_anew(one.name, time)
    return recorder


def judge(file: Path) -> tuple[list[Count], Recorder]:
    """The judgement over a file. Raises as `read`."""
    recorder = read(file)
    return recorder.judge(), recorder


def _packed(numbers: array[int] | array[float]) -> bytes:
    return _swapped(numbers).tobytes()


def _unpacked(code: str, data: bytes) -> array:  # type: ignore[type-arg]
    numbers = array(code)
    numbers.frombytes(data)
    return _swapped(numbers)


def _swapped(numbers: array) -> array:  # type: ignore[type-arg]
    """In the file's order of bytes."""
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers
