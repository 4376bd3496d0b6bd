"""Checks the client certificates of an HTTPS interface against the mesh's authority, by broker name."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection
from pathlib import Path

from saps.identity.certificates import CertificateError, Revoked, presented, read_certificates, read_lists
from saps.identity.verdict import Presented, standing_fault


class Visitors:
    """Decides which clients may use an HTTPS interface, after TLS has verified their certificates."""

    def __init__(self, names: Collection[str] = (), authority: Path | None = None, revoked: Path | None = None) -> None:
        """`names` are the brokers to admit; without any, every certificate of the mesh will do. `revoked` is a file of
        revocation lists, signed by the certificates in the file `authority`. Raises `OSError`, `CertificateError`."""
        self._names = frozenset(names)
        self._authority = authority
        self._file = revoked
        self._revoked = Revoked(frozenset(), {})
        self.reload()

    def reload(self) -> None:
        """Read the revocation lists again. Raises `OSError`, `CertificateError`; then the old lists stay in force."""
        if self._file is not None and self._authority is not None:
            authorities = read_certificates(self._authority.read_bytes())
            self._revoked = read_lists(self._file.read_bytes(), authorities)

    def fault(self, transport: asyncio.BaseTransport | None) -> str | None:
        """Return why the client is refused, or None if it is admitted."""
        der = certificate_of(transport)
        if der is None:
            return "it shows no certificate"
        try:
            shown = presented(der)
        except CertificateError as error:
            return str(error)
        fault = standing_fault(shown, self._revoked.serials, time.time())
        return fault or name_fault(shown, self._names)


def name_fault(shown: Presented, names: Collection[str]) -> str | None:
    """Return why a certificate belongs to none of these brokers; None if it does, or if there are no names."""
    if not names or any(identity.broker in names for identity in shown.identities):
        return None
    whose = " and ".join(map(str, shown.identities)) or "no broker"
    return f"its certificate is of {whose}, not of {' or '.join(sorted(names))}"


def certificate_of(transport: asyncio.BaseTransport | None) -> bytes | None:
    """Return the verified certificate (DER) of a connection's peer, or None if it has shown none."""
    over_tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
    return over_tls.getpeercert(binary_form=True) if over_tls is not None else None
