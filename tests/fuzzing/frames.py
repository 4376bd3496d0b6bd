"""The stream of frames from another broker (target ``frames``): lengths, MessagePack, claims, and all of it again.

The bytes are a list of pieces: as they are, or as a frame with its length, or one that is built from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from saps.messages import Message, Properties
from saps.overlay.frames.base import Frame, ProtocolError
from saps.overlay.frames.calls import Keep, Locate, Record
from saps.overlay.frames.delivery import DefineBroker, DefineSlice, Part, Publish
from saps.overlay.frames.framing import FrameReader, WireError, encode_into, hello
from saps.overlay.frames.kinds import AnyFrame
from saps.overlay.frames.ring import Insert, Seek
from saps.overlay.ring.keys import BrokerRef, Key, KeyOrder, Ref, broker_key, filter_key, partition_range, publisher_key
from saps.overlay.validation.senders import check_sender
from tests.batches import frame as publication
from tests.fuzzing.supply import Builder, Supply
from tests.fuzzing.target import Target

ORDER = KeyOrder.CLUSTER
FOE = BrokerRef("foe", 9, "foe:1", "c1")
FRIENDS = [BrokerRef(f"b{i}", i + 1, f"b{i}:1", f"c{i % 2}") for i in range(3)]
STRANGERS = [
    BrokerRef("b0", 99, "b0:1", "c0"),
    BrokerRef("b1", 99, "foe:1", "c1"),
    BrokerRef("nobody", 1, "nobody:1", "c0"),
    BrokerRef("odd", 1, "no address", ""),
    BrokerRef("", 0, "", ""),
]
BROKERS = [*FRIENDS, FOE, *STRANGERS]
TEXTS = [
    "a/b",
    "a/c",
    "a/+",
    "a/#",
    "#",
    "$share/g/a/b",
    "$share/g/a/#",
    "a",
    "b0",
    "b1",
    "b2",
    "foe",
    "client0",
    "client1",
    "client2",
    "ofgate",
    "ofm",
    "user",
    "",
    "a//b",
    "/",
    "+",
    "$share",
    "$share//",
    "a#",
    "a+/b",
    "\0",
    "a\0b",
    "x" * 70_000,
    "a/" * 3000,
    "é" * 40_000,
    "$SYS/x",
    "report",
    "describe",
    "_run",
    "status",
    "joined",
    "foe:1",
]
BLOBS = [b"", b"payload", b"group001", bytes(32), b"\x93\xc0\x90\x90", b"x" * 100_000]
_KIND = msgspec.inspect.type_info(AnyFrame)
RAW, FRAMED, BUILT = range(3)


def keys() -> list[Key]:
    """Keys of brokers that are there, and odd ones."""
    found = [broker_key(broker.name) for broker in BROKERS]
    for broker in BROKERS[:5]:
        found += [filter_key(text, broker, ORDER) for text in ("a/b", "a/#", "#", "$share/g/a/b")]
        found += [publisher_key("a/b", broker, ORDER)]
    found += [
        *partition_range(5),
        Key(b""),
        Key(b"r\0no number", 3),
        Key(b"t\0\xff", 1),
        Key(b"t", 300),
        Key(b"t", -1, b"\xff"),
    ]
    return found


def pools() -> dict[Any, Sequence[Any]]:
    """What builders choose from."""
    places = keys()
    refs = [Ref(key, broker, 1) for broker in BROKERS[:6] for key in places if key.broker in (broker.name, "foe")]
    messages = [Message("a/b", b"payload", 1), Message("a/b", b"", 2, True, Properties(stamp=1 << 62))]
    return {BrokerRef: BROKERS, Key: places, Ref: refs, Message: messages}


_POOLS = pools()


def frame_of(supply: Supply) -> Frame:
    """Any frame; what its fields hold may be no frame's."""
    frame: Frame = Builder(supply, TEXTS, BLOBS, _POOLS).build(_KIND)
    return frame


def encoded(frame: Frame) -> bytes | None:
    """As it goes over a link; None if it cannot."""
    buffer = bytearray()
    try:
        encode_into(buffer, frame)
    except (OverflowError, ValueError, TypeError):
        return None
    return bytes(buffer)


def pieces(data: bytes) -> Iterator[bytes]:
    """What is sent."""
    supply = Supply(data)
    while supply:
        match supply.byte() % 3:
            case 0:
                yield supply.chunk()
            case 1:
                body = supply.chunk()
                yield len(body).to_bytes(4) + body
            case _:
                yield encoded(frame_of(supply)) or b""


def fuzz_frames(data: bytes) -> None:
    """Whatever comes is frames, or ends the link; frames mean the same when they are written and read again."""
    reader = FrameReader()
    assert reader.feed(hello(FOE, ORDER)) == []
    fed = 0
    for piece in pieces(data):
        fed += len(piece)
        try:
            frames = reader.feed(piece)
            check_sender(FOE, frames, ORDER)
        except (WireError, ProtocolError):
            return
        assert len(reader._buffer) <= fed
        for frame in frames:
            once = encoded(frame)
            assert once is not None, frame
            again = FrameReader()
            again.feed(hello(FOE, ORDER))
            (same,) = again.feed(once)
            assert encoded(same) == once, frame


def seeds() -> list[bytes]:
    """Sound frames."""
    at = Ref(filter_key("a/b", FOE, ORDER), FOE, 1)
    sound: list[Frame] = [
        Insert(0, None, at),
        Seek(at.key, 1, True, at, 10),
        DefineBroker(1, FRIENDS[0]),
        DefineSlice(1, [1]),
        publication("a/b", 7, 0, b"payload", 1, origin=1, slice=1, token=3, properties=Properties(message_expiry=5)),
        Publish(1, 0, 4, 1, False, [Part("a/b", 7)], [0, 0], [8, 9], [b"x", b"y"]),
        Publish(1, 0, 5, 2, True, [Part("a/b", 9), Part("a", 0)], [0, 1, 0], [10, 11, 12], [b"x", b"y", b"z"]),
        Locate(0, None, FOE, 1, *partition_range(1), Keep([Record(Message("a/b", b"x", 1, True), 0, FOE, 1)])),
    ]
    found = []
    for frame in sound:
        body = (encoded(frame) or b"")[4:]
        found.append(bytes((FRAMED, len(body))) + body)
    built = [bytes((BUILT, number)) + bytes(range(1, 40)) for number in range(64)]
    return [*found, b"".join(found), *built]


TARGETS = [Target("frames", "a broker of the mesh, as a stream", fuzz_frames, seeds)]
