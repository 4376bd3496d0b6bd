"""A running broker's identity: it presents and checks certificates, and reloads them when their files change."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from saps.identity.certificates import CertificateError, presented
from saps.identity.credentials import CredentialError, Credentials, show
from saps.identity.https import certificate_of, name_fault
from saps.identity.listener import SealedListener
from saps.identity.names import Identity
from saps.identity.verdict import Presented, claim_fault, standing_fault
from saps.overlay.frames.framing import WireError

logger = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two checks of the files and of the links."""
HANDSHAKE = 3.0
"""Limit of a TLS handshake in seconds."""
WARN = 1 / 4
"""Fraction of a certificate's life that remains when the log warns of its end."""

Stamp = tuple[tuple[int, int, int] | None, ...]


class LinkIdentity:
    """The credentials that `saps.links.Links` uses, kept up to date."""

    def __init__(
        self,
        load: Callable[[], Credentials],
        files: Sequence[Path],
        me: Identity,
        grace: float,
        clock: Callable[[], float] = time.time,
        renews: bool = False,
    ) -> None:
        """`load` makes credentials from `files`. With `renews`, `load` issues them itself and is called again at half
        of their life. `grace` is how many seconds a link may outlive a certificate. Raises `CredentialError`."""
        self._load = load
        self._files = files
        self._me = me
        self.clock = clock
        self._renews = renews
        self.grace = grace
        self._stamp = self._stamps()
        self._warned = False
        self.taken = True
        """False after a refused reload: the files on disk are not those in force."""
        self.credentials = self._checked(load())
        self.https = self.credentials.https
        """The HTTPS client context: one object for the broker's life, which always shows the certificate in force."""

    # --- for the links ------------------------------------------------------------------------------------------

    def dial(self) -> dict[str, Any]:
        """Return the TLS arguments for `create_connection`."""
        return {"ssl": self.credentials.client, "server_hostname": "", "ssl_handshake_timeout": HANDSHAKE}

    async def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> tuple[SealedListener, int]:
        """Start to accept links; return the listener and its port. Raises `OSError`."""
        listener = SealedListener(factory, lambda: self.credentials.server, HANDSHAKE)
        return listener, await listener.open(host, port)

    def admit(self, transport: asyncio.BaseTransport, name: str, cluster: str) -> Presented:
        """Check the peer's certificate against the broker name and cluster that it claims, and return the certificate.

        An empty `name` accepts any broker of the mesh. Raises `WireError` if the certificate does not permit it."""
        shown = self.shown(transport)
        fault = standing_fault(shown, self.credentials.revoked.serials, self.clock())
        if fault is None and name:
            fault = claim_fault(shown, name, cluster)
        elif fault is None and not shown.identities:
            fault = "its certificate is no broker's"
        if fault is not None:
            raise WireError(fault)
        return shown

    def visitor_fault(self, transport: asyncio.BaseTransport | None, names: Collection[str]) -> str | None:
        """Return why the client of an HTTPS connection is refused, or None if it is one of the brokers `names`, or any
        broker if `names` is empty."""
        if transport is None:
            return "the connection is gone"
        try:
            return name_fault(self.admit(transport, "", ""), names)
        except WireError as error:
            return str(error)

    def shown(self, transport: asyncio.BaseTransport) -> Presented:
        """Return the certificate that the peer of a TLS connection has shown. Raises `WireError`."""
        der = certificate_of(transport)
        if der is None:
            raise WireError("it shows no certificate")
        try:
            return presented(der)
        except CertificateError as error:
            raise WireError(str(error)) from None

    def fault(self, shown: Presented, grace: float) -> str | None:
        """Return why an established link must close, or None. `grace`: seconds that it may outlive its certificate."""
        return standing_fault(shown, self.credentials.revoked.serials, self.clock(), grace)

    def revoked(self, shown: Presented) -> bool:
        """Return whether the certificate is revoked."""
        return shown.serial in self.credentials.revoked.serials

    # --- looking after it -----------------------------------------------------------------------------------------

    async def watch(self, review: Callable[[], None]) -> None:
        """Reload changed files and call `review`, which checks the links, each `LOOK` seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            self.look()
            review()

    def look(self) -> None:
        """Reload the files if they have changed, and warn once if the certificate is about to expire."""
        now, own = self.clock(), self.credentials.own
        if self._stamps() != self._stamp or (self._renews and now > (own.begins + own.ends) / 2):
            self.reload()
        elif now > own.ends - WARN * (own.ends - own.begins) and not self._warned:
            self._warned = True
            logger.warning("the certificate of the links ends in %.0f s: renew it", max(0.0, own.ends - now))

    def reload(self) -> bool:
        """Load all files anew and put them in force. If one is at fault, logs it, keeps the old credentials and returns
        False."""
        self._stamp = self._stamps()
        before = self.credentials
        try:
            fresh = self._checked(self._load())
            for issuer, number in before.revoked.numbers.items():
                if fresh.revoked.numbers.get(issuer, number) < number:
                    raise CredentialError("revoked", "is older than the list in force")
        except CredentialError as error:
            self.taken = False
            logger.error("new identity of the links refused, the old one stays: %s: %s", error.which, error.reason)
            return False
        self.credentials, self.taken = fresh, True
        show(self.https, fresh.chain)
        self._warned = False
        logger.info("identity of the links reloaded: %d certificates revoked", len(fresh.revoked.serials))
        return True

    def _checked(self, found: Credentials) -> Credentials:
        if self._me not in found.own.identities:
            whose = " and ".join(map(str, found.own.identities)) or "no broker"
            raise CredentialError("certificate", f"is of {whose}, not of {self._me}")
        if self.clock() >= found.own.ends:
            raise CredentialError("certificate", "has expired")
        return found

    def _stamps(self) -> Stamp:
        return tuple(map(_stamp, self._files))


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever the file does; None if it cannot be read."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
