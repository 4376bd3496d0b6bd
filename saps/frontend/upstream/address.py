"""Parses the URL of the upstream: its address and our credentials, ``mqtts://user:password@broker.example:8883``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

PORTS = {"mqtt": 1883, "mqtts": 8883}
"""Default port by URL scheme; ``mqtts`` means TLS."""


class Endpoint(NamedTuple):
    """The address of an upstream, and the credentials for it. `str` and `repr` leave out the credentials, for logs."""

    host: str
    port: int
    tls: bool
    username: str | None = None
    password: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"Endpoint({self})"

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Return the endpoint of a URL. User and password may be percent-encoded.

        Raises `ValueError` for an invalid URL; the text never contains the URL.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("is not a URL such as mqtt://127.0.0.1:1883") from None
        if parts.scheme not in PORTS:
            raise ValueError("must begin with mqtt:// or mqtts://")
        if not host:
            raise ValueError("names no host: expected mqtt://HOST:PORT")
        if port == 0:
            raise ValueError("port 0 cannot be reached")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("must end after the port: topics are given by upstream.topics")
        user = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else unquote(parts.password)
        return cls(host, port or PORTS[parts.scheme], parts.scheme == "mqtts", user, password)


def url_fault(url: str) -> str | None:
    """Return why `url` cannot name an upstream, or None if it can. An empty `url` means no upstream and is valid."""
    try:
        if url:
            Endpoint.parse(url)
    except ValueError as error:
        return str(error)
    return None
