"""Where a connection comes from, from what its transport tells."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any

from saps.frontend.mqtt.access.guard import Origin


def origin_of(peer: Any, certificate: Mapping[str, Any] | None, user_from: str | None) -> Origin:
    """The origin of a transport with this ``peername`` and ``peercert``.

    `user_from`: see `certificate_user`; None if certificates are not looked at.
    """
    host = str(peer[0]) if isinstance(peer, tuple) and peer else "?"
    user = certificate_user(certificate, user_from) if certificate and user_from is not None else None
    return Origin(host, is_loopback(host), user)


def is_loopback(host: str) -> bool:
    """True if an IP address, or the name localhost, can only be reached from the same machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def certificate_user(certificate: Mapping[str, Any], user_from: str) -> str | None:
    """The user name in a verified certificate, as `ssl.SSLSocket.getpeercert` gives it; None if there is none.

    ``cn``: the subject's common name, if it is the only one. ``san``: the first alternative name that is a DNS name, an
    e-mail address or a URI.
    """
    if user_from == "san":
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "email", "URI")]
        return names[0] if names else None
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return names[0] if len(names) == 1 else None
