"""Makes the TLS context of the MQTT listeners from files."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from saps.frontend.mqtt.access.options import TlsOptions
from saps.identity.verdict import Serial
from saps.runtime.openssl import no_passphrase, reason_of

Revoked = frozenset[Serial]
"""Serials of the certificates on a revocation list."""

_LIST = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsError(Exception):
    """A file is not valid for TLS. `option` is the field of `TlsOptions` that names it."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Make the context of the listeners from the current files. Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.minimum_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _readable("certificate", options.certificate)
    if options.key:
        _readable("key", options.key)
    try:
        context.load_cert_chain(options.certificate, options.key or None, password=no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError("key" if options.key else "certificate", f"{options.certificate}: {reason_of(error)}") from None
    if options.client_certificates != "none":
        _readable("client_ca", options.client_ca)
        try:
            context.load_verify_locations(options.client_ca)
        except ssl.SSLError as error:
            raise TlsError("client_ca", f"{options.client_ca}: {reason_of(error)}") from None
        if options.client_revoked:
            _readable("client_revoked", options.client_revoked)
            try:
                context.load_verify_locations(options.client_revoked)
            except ssl.SSLError as error:
                raise TlsError("client_revoked", f"{options.client_revoked}: {reason_of(error)}") from None
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        context.verify_mode = _VERIFY[options.client_certificates]
    return context


def certificate_end(options: TlsOptions) -> float:
    """Return the expiry of the listeners' own certificate, in seconds since the epoch. Raises `TlsError`."""
    from cryptography import x509  # here: brokers without TLS do not carry it

    try:
        own = x509.load_pem_x509_certificates(Path(options.certificate).read_bytes())[0]
    except (OSError, ValueError) as error:
        raise TlsError("certificate", f"{options.certificate}: {error}") from None
    return own.not_valid_after_utc.timestamp()


def revoked_certificates(options: TlsOptions) -> Revoked:
    """Return the certificates on the current revocation lists. Raises `TlsError`."""
    if options.client_certificates == "none" or not options.client_revoked:
        return frozenset()
    from cryptography import x509

    try:
        lists = [x509.load_pem_x509_crl(block) for block in _LIST.findall(Path(options.client_revoked).read_bytes())]
        return frozenset(Serial(found.issuer.public_bytes(), entry.serial_number) for found in lists for entry in found)
    except (OSError, ValueError) as error:
        raise TlsError("client_revoked", f"{options.client_revoked}: {error}") from None


def _readable(option: str, path: str) -> None:
    """Check that a file is readable. Raises `TlsError` with its name, which errors of `ssl` lack."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise TlsError(option, f"cannot read {path}: {error.strerror}") from None
