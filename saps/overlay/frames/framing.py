"""Encodes and decodes frames in a TCP stream: a length of 4 bytes, big endian, then one MessagePack array.

The first frame in each direction is `Hello`. The broker that made the connection sends frames over it; the other broker
answers with its own `Hello` and nothing else. As a link carries one direction, two brokers that connect to each other
at the same moment need not agree on one connection.
"""

from __future__ import annotations

import msgspec

from saps.overlay.frames.base import Frame
from saps.overlay.frames.kinds import AnyFrame
from saps.overlay.ring.keys import BrokerRef

MAGIC = "SAPS"
LOWEST_VERSION = 3
VERSION = 4
"""Highest protocol version of this code; `LOWEST_VERSION` is the lowest. Earlier versions were never released."""
MAX_FRAME = (1 << 28) + (1 << 16)
"""Limit of a frame in bytes: the largest MQTT packet and 64 KiB for the fields around it."""
_LENGTH = 4
_TLS_ALERT = b"\x15\x03"
"""First bytes of a TLS server's answer to a peer that does not speak TLS (RFC 8446, 5.1). As the length of a frame they
would exceed the limit."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyFrame)


class WireError(ValueError):
    """A peer sent bytes that violate the protocol. The caller must close the link; the text says what was wrong."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame on a connection: I am `broker`, and speak these versions."""

    magic: str
    lowest: int
    highest: int
    order: str
    """Order of the keys (`KeyOrder`): the same on all brokers of a mesh."""
    broker: BrokerRef
    express: bool = False
    """Whether this connection is the express lane, beside the common one (`saps.overlay.delivery.express`)."""


_hello_decoder = msgspec.msgpack.Decoder(Hello)


def hello(broker: BrokerRef, order: str, *, express: bool = False, highest: int = VERSION) -> bytes:
    """Return the first bytes of a connection, in either direction. `order` is the value of the `KeyOrder`, `highest`
    the highest version to speak."""
    body = _encoder.encode(Hello(MAGIC, LOWEST_VERSION, highest, order, broker, express))
    return len(body).to_bytes(_LENGTH) + body


def agree(theirs: Hello, order: str, highest: int = VERSION) -> int:
    """Return the highest version that both sides speak. Raises `WireError` if there is none, if the peer is not a SAPS
    broker, or if the key orders differ."""
    if theirs.magic != MAGIC:
        raise WireError("the peer is not a SAPS broker")
    version = min(theirs.highest, highest)
    if version < max(theirs.lowest, LOWEST_VERSION):
        raise WireError(
            f"broker {theirs.broker.name} speaks versions {theirs.lowest} to {theirs.highest} of the protocol, "
            f"this one {LOWEST_VERSION} to {highest}"
        )
    if theirs.order != order:
        raise WireError(f"broker {theirs.broker.name} orders its keys by {theirs.order!r}, this one by {order!r}")
    return version


def encode_into(buffer: bytearray, frame: Frame) -> None:
    """Append one frame to a buffer of outgoing bytes."""
    start = len(buffer)
    buffer += b"\0\0\0\0"
    _encoder.encode_into(frame, buffer, start + _LENGTH)
    buffer[start : start + _LENGTH] = (len(buffer) - start - _LENGTH).to_bytes(_LENGTH)


def packed(frame: Frame) -> bytes:
    """Return a frame without its length, to be carried by another one."""
    return _encoder.encode(frame)


def unpacked(raw: bytes) -> Frame:
    """Return the frame that another one has carried. Raises `WireError` for bytes that violate the protocol."""
    try:
        frame: Frame = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a frame that cannot be read: {error}") from None
    return frame


class FrameReader:
    """Incremental parser of one connection's incoming bytes."""

    def __init__(self) -> None:
        self.peer: Hello | None = None
        """The `Hello` of the other side; None until it has come."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames completed by `data`, without the `Hello`. Raises `WireError` if the bytes violate the
        protocol; then close the link."""
        buffer = self._buffer
        if buffer:
            buffer += data
        unread = buffer or data  # as a rule no partial frame is buffered: then nothing is copied
        frames: list[Frame] = []
        pos = 0
        end = len(unread)
        if self.peer is None and unread.startswith(_TLS_ALERT):
            raise WireError("the other side requires TLS: see links.tls and links.secret_file")
        with memoryview(unread) as view:
            while end - pos >= _LENGTH:
                size = int.from_bytes(view[pos : pos + _LENGTH])
                if size > MAX_FRAME or (self.peer is None and size > 4096):
                    raise WireError(f"a frame of {size} bytes is too long")
                if end - pos - _LENGTH < size:
                    break
                start = pos + _LENGTH
                pos = start + size
                body = view[start:pos]
                try:
                    if self.peer is None:
                        self.peer = _hello_decoder.decode(body)
                    else:
                        frames.append(_decoder.decode(body))
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise WireError(f"a frame that cannot be read: {error}") from None
                finally:
                    body.release()
        if unread is buffer:
            del buffer[:pos]
        else:
            buffer += data[pos:]
        return frames
