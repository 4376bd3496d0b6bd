"""Messages of a switch, byte by byte from the specification (OpenFlow 1.3.5, 7), for tests of the controller's side."""

from __future__ import annotations

import struct

from saps.ofm.openflow.connection import Connection
from saps.ofm.openflow.events import Event, Limits

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY = 0, 1, 2, 3, 6
PACKET_IN, PORT_STATUS, FLOW_MOD, GROUP_MOD = 10, 12, 14, 15
MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 18, 19, 20, 21
DESC, FLOW, GROUP_DESC, PORT_DESC = 0, 1, 7, 13


def message(kind: int, body: bytes = b"", xid: int = 0, version: int = 4) -> bytes:
    """7.1."""
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def hello(*versions: int, highest: int = 4) -> bytes:
    """With a bitmap of these versions, or none at all."""
    bitmap = struct.pack("!HHI", 1, 8, sum(1 << version for version in versions)) if versions else b""
    return message(HELLO, bitmap, version=highest)


def error(xid: int, kind: int, code: int, data: bytes = b"") -> bytes:
    """7.4.4."""
    return message(ERROR, struct.pack("!HH", kind, code) + data, xid)


def features(dpid: int, xid: int, auxiliary: int = 0) -> bytes:
    """7.3.1."""
    return message(FEATURES_REPLY, struct.pack("!QIBBxxII", dpid, 0, 254, auxiliary, 0x47, 0), xid)


def part(kind: int, body: bytes, xid: int, more: bool = False) -> bytes:
    """7.3.5."""
    return message(MULTIPART_REPLY, struct.pack("!HHxxxx", kind, more) + body, xid)


def port(number: int, name: str, *, state: int = 0) -> bytes:
    """7.2.1."""
    return struct.pack(
        "!I4x6s2x16s8I", number, bytes([2, 0, 0, 0, 0, number]), name.encode(), 0, state, 0, 0, 0, 0, 0, 0
    )


def maker(model: str) -> bytes:
    """7.3.5.1."""
    return struct.pack("!256s256s256s32s256s", b"maker", model.encode(), b"", b"", b"")


def packet_in(at: int, frame: bytes) -> bytes:
    """7.4.1."""
    match = struct.pack("!HHII", 1, 12, 0x80000004, at) + bytes(4)
    return message(PACKET_IN, struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 77) + match + bytes(2) + frame)


def split(data: bytes) -> list[bytes]:
    """A byte stream as messages."""
    found = []
    while data:
        (length,) = struct.unpack_from("!H", data, 2)
        found.append(data[:length])
        data = data[length:]
    return found


def sent(connection: Connection) -> list[tuple[int, int, bytes]]:
    """What the controller has sent, as (type, transaction id, message)."""
    return [(one[1], struct.unpack_from("!I", one, 4)[0], one) for one in split(connection.take())]


def answers(connection: Connection, dpid: int = 1, auxiliary: int = 0) -> bytes:
    """What a switch with two ports answers to the questions of the handshake."""
    replies = b""
    for kind, xid, asked in sent(connection):
        if kind == FEATURES_REPLY - 1:
            replies += features(dpid, xid, auxiliary)
        elif kind == MULTIPART_REQUEST and asked[8:10] == b"\0\0":
            replies += part(DESC, maker("a model"), xid)
        elif kind == MULTIPART_REQUEST:
            replies += part(PORT_DESC, port(1, "one"), xid, more=True) + part(PORT_DESC, port(2, "two", state=1), xid)
    return replies


def handshake(limits: Limits | None = None) -> tuple[Connection, list[Event]]:
    """A connection that is ready, and the events so far."""
    connection = Connection(limits or Limits())
    connection.receive(hello(4))
    return connection, connection.receive(answers(connection))
