"""Where a connection comes from, and whose certificate it shows, from what its transport tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from saps.frontend.mqtt.access.guard import Origin

_KINDS = {"dns": ("DNS",), "email": ("email",), "uri": ("URI",), "san": ("DNS", "email", "URI")}
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""RFC 4514, section 3; other types keep the name that `ssl` gives them."""
_SPECIAL = re.compile(r'[,+"\\<>;]|^[ #]| $')


class Naming(NamedTuple):
    """What in a client's certificate is its user: the settings ``tls.user_from`` and ``tls.user_pattern``."""

    part: str
    pattern: re.Pattern[str] | None = None
    """It must fit the whole part; its group, if it has one, is the user."""

    def user(self, certificate: Mapping[str, Any], der: bytes | None) -> str | None:
        """The user of a verified certificate, as `ssl.SSLSocket.getpeercert` gives it and as DER; None if it names
        none."""
        if self.part == "fingerprint":
            found = None if der is None else sha256(der).hexdigest()
        else:
            found = _named(certificate, self.part)
        if found is None or self.pattern is None:
            return found
        fits = self.pattern.fullmatch(found)
        return None if fits is None else fits[1] if self.pattern.groups else found


def pattern_fault(text: str) -> str | None:
    """Why this cannot be ``tls.user_pattern``, or None if it can."""
    try:
        groups = re.compile(text).groups
    except re.error as error:
        return f"{text!r} is not a regular expression: {error}"
    return f"{text!r} has {groups} groups, at most one can be the user" if groups > 1 else None


def origin_of(peer: Any) -> Origin:
    """The origin of a transport with this ``peername``, which shows no certificate."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else "?"
    return Origin(host, is_loopback(host))


def is_loopback(host: str) -> bool:
    """True if an IP address, or the name localhost, can only be reached from the same machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _named(certificate: Mapping[str, Any], part: str) -> str | None:
    """``cn``: the subject's common name, if it is the only one. ``dn``: the subject (RFC 4514). ``san``: the first
    alternative name that is a DNS name, an e-mail address or a URI; ``dns``, ``email``, ``uri``: the only one of its
    kind."""
    subject = certificate.get("subject", ())
    if part == "dn":
        return ",".join("+".join(f"{_SHORT.get(kind, kind)}={_escaped(v)}" for kind, v in rdn) for rdn in subject[::-1])
    if part == "cn":
        names = [value for rdn in subject for kind, value in rdn if kind == "commonName"]
    else:
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in _KINDS[part]]
    return names[0] if len(names) == 1 or (names and part == "san") else None


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: "\\" + found[0], value)
