"""Marks the packets of a connection for priority in the network (DSCP)."""

from __future__ import annotations

import socket


def mark(made: socket.socket, dscp: int) -> None:
    """Have a socket send its packets with this differentiated services code point (RFC 2474)."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
