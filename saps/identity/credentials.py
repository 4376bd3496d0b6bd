"""A broker's TLS contexts, built from certificate files or from a shared secret.

They allow TLS 1.3 only, require a certificate from both sides, and issue no session tickets, so that every connection
checks the certificates again.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from saps.identity.certificates import (
    SKEW,
    Authority,
    CertificateError,
    Revoked,
    describe,
    issue,
    read_certificates,
    read_lists,
)
from saps.identity.names import Identity
from saps.identity.secret import SecretError, authority_of
from saps.identity.verdict import Presented
from saps.runtime.openssl import no_passphrase, reason_of

OWN_INCARNATION = 7 * 86400.0
"""Validity in seconds of the certificate that a broker with a shared secret issues to itself; it renews it at half."""
_NOTHING = Revoked(frozenset(), {})


class CredentialError(Exception):
    """An unusable file: `which` is `certificate`, `key`, `authority`, `revoked` or `secret`; `reason` says why."""

    def __init__(self, which: str, reason: str) -> None:
        super().__init__(which, reason)
        self.which = which
        self.reason = reason


class Credentials(NamedTuple):
    """One set of TLS contexts and what they were made from; only ever replaced as a whole."""

    own: Presented
    server: ssl.SSLContext
    """For accepted links."""
    client: ssl.SSLContext
    """For outgoing links."""
    https: ssl.SSLContext
    """For HTTPS requests: the server's certificate must contain the host of the address."""
    revoked: Revoked
    chain: bytes
    """Own key and certificates, PEM."""


class FileSet(NamedTuple):
    """The paths of the files; an empty text means that there is none."""

    certificate: str
    key: str
    authority: str
    revoked: str

    @property
    def paths(self) -> list[Path]:
        """The paths that are set."""
        return [Path(name) for name in self if name]


def from_files(files: FileSet) -> Credentials:
    """Read the files and build the contexts. Raises `CredentialError` for the first file that is at fault."""
    chain = _read("certificate", files.certificate)
    key = _read("key", files.key) if files.key else b""
    trusted = _read("authority", files.authority)
    try:
        own = describe(read_certificates(chain)[0])
    except ValueError as error:
        raise CredentialError("certificate", f"{files.certificate}: {error}") from None
    try:
        authorities = read_certificates(trusted)
    except CertificateError as error:
        raise CredentialError("authority", f"{files.authority}: {error}") from None
    revoked = _NOTHING
    if files.revoked:
        try:
            revoked = read_lists(_read("revoked", files.revoked), authorities)
        except CertificateError as error:
            raise CredentialError("revoked", f"{files.revoked}: {error}") from None
    try:
        found = contexts(key + chain, trusted)
    except (ssl.SSLError, ValueError) as error:
        which, file = ("key", files.key) if files.key else ("certificate", files.certificate)
        raise CredentialError(which, f"{file}: {reason_of(error)}") from None
    return Credentials(own, *found, revoked, key + chain)


def secret_in(file: str) -> Authority:
    """Derive an authority from the secret in a file's first line. Raises `CredentialError`."""
    text = _read("secret", file).decode(errors="replace").partition("\n")[0].strip()
    try:
        return authority_of(text)
    except SecretError as error:
        raise CredentialError("secret", f"{file} {error}") from None


def from_secret(authority: Authority, identity: Identity, now: float) -> Credentials:
    """Issue a certificate to oneself, valid for `OWN_INCARNATION` seconds from `now`, and build the contexts."""
    issued = issue(authority, identity, now - SKEW, now + OWN_INCARNATION)
    return Credentials(describe(issued.certificate), *contexts(issued.pem, authority.pem), _NOTHING, issued.pem)


def contexts(own: bytes, authorities: bytes) -> tuple[ssl.SSLContext, ssl.SSLContext, ssl.SSLContext]:
    """Build the contexts `server`, `client` and `https`.

    `own` is the key and certificate chain, `authorities` the trusted certificates, both PEM. Raises `ssl.SSLError` and
    `ValueError`."""
    server = _context(ssl.PROTOCOL_TLS_SERVER, own, authorities)
    server.num_tickets = 0
    client, https = (_context(ssl.PROTOCOL_TLS_CLIENT, own, authorities) for _ in range(2))
    https.check_hostname = True
    return server, client, https


def _context(protocol: int, own: bytes, authorities: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the name that counts is the broker's: `saps.identity.verdict`
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.load_verify_locations(cadata=authorities.decode("ascii", errors="replace"))
    show(context, own)
    return context


def show(context: ssl.SSLContext, own: bytes) -> None:
    """Use this key and certificate (PEM) for new connections of a context. Raises `ssl.SSLError` and `ValueError`."""
    with _as_file(own) as path:
        context.load_cert_chain(path, password=no_passphrase)


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Provide the content as a file, since `ssl` reads keys from files only: in memory on Linux, elsewhere as a
    temporary file with mode 0600."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("saps")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _read(which: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CredentialError(which, f"cannot read {path}: {error.strerror}") from None
