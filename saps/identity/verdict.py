"""What a certificate permits: the one place where it is decided who may say to be which broker, and for how long."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from saps.identity.names import Identity


class Serial(NamedTuple):
    """Names one certificate."""

    issuer: bytes
    """The issuer's name, DER."""
    number: int


class Presented(NamedTuple):
    """What a peer has shown: a certificate whose chain TLS has verified."""

    identities: tuple[Identity, ...]
    serial: Serial
    begins: float
    """Seconds since the epoch, as `ends`."""
    ends: float


def claim_fault(shown: Presented, name: str, cluster: str) -> str | None:
    """Why the holder may not say to be this broker of this cluster, or None if it may."""
    if Identity(cluster, name) in shown.identities:
        return None
    if not shown.identities:
        return f"says to be {name} of {cluster}, and its certificate is no broker's"
    return f"says to be {name} of {cluster}, and its certificate is of {' and '.join(map(str, shown.identities))}"


def standing_fault(shown: Presented, revoked: Collection[Serial], now: float, grace: float = 0.0) -> str | None:
    """Why the certificate does not hold at `now`, or None if it does. `grace`: seconds that it holds beyond its end."""
    if shown.serial in revoked:
        return "its certificate is revoked"
    if now >= shown.ends + grace:
        return "its certificate has expired"
    if now < shown.begins - grace:
        return "its certificate is not valid yet"
    return None
