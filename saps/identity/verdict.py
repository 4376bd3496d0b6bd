"""Decides what a certificate permits: which broker its holder may claim to be, and until when. The only such place."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from saps.identity.names import Identity


class Serial(NamedTuple):
    """The serial number that identifies a certificate."""

    issuer: bytes
    """The issuer's name, DER."""
    number: int


class Presented(NamedTuple):
    """A peer's certificate, whose chain TLS has verified."""

    identities: tuple[Identity, ...]
    serial: Serial
    begins: float
    """Seconds since the epoch, as `ends`."""
    ends: float


def claim_fault(shown: Presented, name: str, cluster: str) -> str | None:
    """Return why the certificate's holder may not claim to be this broker of this cluster, or None if it may."""
    if Identity(cluster, name) in shown.identities:
        return None
    if not shown.identities:
        return f"says to be {name} of {cluster}, and its certificate is no broker's"
    return f"says to be {name} of {cluster}, and its certificate is of {' and '.join(map(str, shown.identities))}"


def standing_fault(shown: Presented, revoked: Collection[Serial], now: float, grace: float = 0.0) -> str | None:
    """Return why the certificate is not valid at `now`, or None if it is. `grace` extends its validity, in seconds."""
    if shown.serial in revoked:
        return "its certificate is revoked"
    if now >= shown.ends + grace:
        return "its certificate has expired"
    if now < shown.begins - grace:
        return "its certificate is not valid yet"
    return None
