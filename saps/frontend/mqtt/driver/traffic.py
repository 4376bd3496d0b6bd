"""Bytes received from clients and sent to them; over TCP as the kernel counts them, on the wire (with TLS: encrypted).

Counting costs nothing while messages pass: the kernel is asked for a connection's counters when it ends, and for those
of all connections when somebody wants the sum (about a microsecond each).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import NamedTuple

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_COUNTERS = struct.Struct("=120xQQ")
"""`tcpi_bytes_acked` and `tcpi_bytes_received` in Linux's `struct tcp_info` (since 4.1)."""


class Bytes(NamedTuple):
    received: int
    sent: int


NONE = Bytes(0, 0)


def bytes_of(transport: asyncio.BaseTransport | None) -> Bytes:
    """The counters of a connection; `NONE` if the kernel has none, or has forgotten it."""
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or _TCP_INFO is None:
        return NONE
    try:
        sent, received = _COUNTERS.unpack(sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _COUNTERS.size))
    except (OSError, ValueError, struct.error):  # not TCP, closed (uvloop: ValueError), or an older kernel
        return NONE
    return Bytes(received, sent)
