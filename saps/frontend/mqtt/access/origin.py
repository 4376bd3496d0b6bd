"""Derives the origin of a connection and the user of its client certificate from the transport's information."""

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
"""By attribute type, as `ssl` names it: the short name of RFC 4514, section 3. Other types keep `ssl`'s name."""
_SPECIAL = re.compile(r'[,+"\\<>;]|^[ #]| $')


class Naming(NamedTuple):
    """Derives the user from a client's certificate by the settings ``tls.user_from`` and ``tls.user_pattern``."""

    part: str
    """The value of ``tls.user_from``."""
    pattern: re.Pattern[str] | None = None
    """Must match the whole part; its group, if any, is the user. None: the whole part is the user."""

    def user(self, certificate: Mapping[str, Any], der: bytes | None) -> str | None:
        """Return the user of a verified certificate, or None if the certificate names none.

        `certificate` has the form of `ssl.SSLSocket.getpeercert`; `der` is the same certificate in DER.
        """
        if self.part == "fingerprint":
            found = None if der is None else sha256(der).hexdigest()
        else:
            found = _named(certificate, self.part)
        if found is None or self.pattern is None:
            return found
        fits = self.pattern.fullmatch(found)
        return None if fits is None else fits[1] if self.pattern.groups else found


def pattern_fault(text: str) -> str | None:
    """Return why the text is no valid ``tls.user_pattern``, or None if it is valid."""
    try:
        groups = re.compile(text).groups
    except re.error as error:
        return f"{text!r} is not a regular expression: {error}"
    return f"{text!r} has {groups} groups, at most one can be the user" if groups > 1 else None


def origin_of(peer: Any) -> Origin:
    """Return the origin of a connection without a certificate. `peer` is its transport's ``peername``."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else "?"
    return Origin(host, is_loopback(host))


def is_loopback(host: str) -> bool:
    """Return whether an IP address, or the name localhost, can only be reached from the same machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _named(certificate: Mapping[str, Any], part: str) -> str | None:
    """Return the part of a certificate that names the user, or None if the certificate has no such unique part.

    ``cn`` is the subject's only common name, ``dn`` the whole subject (RFC 4514). ``san`` is the first alternative name
    that is a DNS name, an e-mail address or a URI. ``dns``, ``email`` and ``uri`` are the only alternative name of
    their kind.
    """
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
