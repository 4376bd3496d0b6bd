"""Where the upstream is and who we are there, from a URL: ``mqtts://user:password@broker.example:8883``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

PORTS = {"mqtt": 1883, "mqtts": 8883}
"""The schemes, and the port of each if the URL has none; ``mqtts`` is TLS."""


class Endpoint(NamedTuple):
    """An upstream. Its `str` is for logs and has no credentials."""

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
        """The endpoint of a URL; user and password may be percent-encoded.

        Raises ValueError, never with the URL in it.
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
    """Why `url` cannot name an upstream, or None if it can. The empty text stands for no upstream."""
    try:
        if url:
            Endpoint.parse(url)
    except ValueError as error:
        return str(error)
    return None
