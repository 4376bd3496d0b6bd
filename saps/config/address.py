"""The TCP addresses at which brokers listen and reach each other."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A TCP address, written ``host:port`` or ``[ipv6]:port``."""

    host: str
    """A host name or an IP address, without brackets."""
    port: int
    """A port from 0 to 65535. For 0 a listener takes any free port."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``host:port`` or ``[ipv6]:port``. Raises `ValueError`, which says what is wrong, for any other text."""
        host, separator, port = text.rpartition(":")
        if not separator or not host or "://" in text:
            raise ValueError(f"{text!r} is not an address: expected host:port, such as 127.0.0.1:1883")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r} is not an address: write an IPv6 host in brackets, such as [::1]:1883")
        if not host or any(c.isspace() or c in "[]/" for c in host):
            raise ValueError(f"{text!r} is not an address: the host is malformed")
        if not (port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ValueError(f"{text!r} is not an address: the port must be a number from 0 to 65535")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
