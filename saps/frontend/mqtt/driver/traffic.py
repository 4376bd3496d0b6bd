"""Reads the kernel's counters of bytes received from clients and sent to them over TCP (with TLS: encrypted bytes).

Counting costs nothing per message. The server reads a connection's counters when the connection ends, and those of all
connections when it needs the sum (about a microsecond each).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import NamedTuple

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_COUNTERS = struct.Struct("=120xQQ")
"""Layout of `tcpi_bytes_acked` and `tcpi_bytes_received` in Linux's `struct tcp_info` (since 4.1)."""


class Bytes(NamedTuple):
    received: int
    sent: int


NONE = Bytes(0, 0)


def bytes_of(transport: asyncio.BaseTransport | None) -> Bytes:
    """Return the counters of a connection, or `NONE` if the kernel has none, or no longer knows the connection."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or _TCP_INFO is None:
        return NONE
    try:
        sent, received = _COUNTERS.unpack(sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _COUNTERS.size))
    except (OSError, ValueError, struct.error):  # not TCP, closed (uvloop: ValueError), or an older kernel
        return NONE
    return Bytes(received, sent)


def taken(transport: asyncio.Transport | None) -> int:
    """Return a number that changes when the peer of a connection takes output (`Port.taken`).

    It is the number of bytes sent, or, if the kernel does not count them, one that depends on those that still wait.
    """
    if transport is None:
        return 0
    return bytes_of(transport).sent or -transport.get_write_buffer_size()
