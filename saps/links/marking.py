"""Packets of a connection that ask the network to let them go first."""

from __future__ import annotations

import socket


def mark(made: socket.socket, dscp: int) -> None:
    """All that the socket sends from now on carries the differentiated services code point (RFC 2474)."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
