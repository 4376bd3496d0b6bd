"""Who may use an HTTPS door: holders of certificates of the mesh, by name."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection
from pathlib import Path

from saps.identity.certificates import CertificateError, Revoked, presented, read_certificates, read_lists
from saps.identity.verdict import Presented, standing_fault


class Visitors:
    """What is asked of a visitor whose certificate TLS has verified."""

    def __init__(self, names: Collection[str] = (), authority: Path | None = None, revoked: Path | None = None) -> None:
        """`names` of brokers that may come in; none: every certificate will do. `revoked`: lists of the authorities in
        `authority`. Raises OSError, `CertificateError`."""
        self._names = frozenset(names)
        self._authority = authority
        self._file = revoked
        self._revoked = Revoked(frozenset(), {})
        self.reload()

    def reload(self) -> None:
        """Read the list again. Raises OSError, `CertificateError`; then the one before stays."""
        if self._file is not None and self._authority is not None:
            authorities = read_certificates(self._authority.read_bytes())
            self._revoked = read_lists(self._file.read_bytes(), authorities)

    def fault(self, transport: asyncio.BaseTransport | None) -> str | None:
        """Why the visitor may not come in, or None if it may."""
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
    """Why the holder is none of these brokers, or None if it is one, or there are no names."""
    if not names or any(identity.broker in names for identity in shown.identities):
        return None
    whose = " and ".join(map(str, shown.identities)) or "no broker"
    return f"its certificate is of {whose}, not of {' or '.join(sorted(names))}"


def certificate_of(transport: asyncio.BaseTransport | None) -> bytes | None:
    """The verified certificate (DER) at the other end of a connection, if it has shown one."""
    over_tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
    return over_tls.getpeercert(binary_form=True) if over_tls is not None else None
