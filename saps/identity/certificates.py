"""Makes and reads X.509 certificates and revocation lists (RFC 5280). All times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from saps.identity.names import Identity, identity_in
from saps.identity.verdict import Presented, Serial

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
SKEW = 3600.0
"""Seconds by which a new certificate is backdated, since the clocks of two machines may differ."""
_LIST_HOLDS = 36500 * 86400.0
"""Seconds until a revocation list expires. X.509 requires a date; nothing checks it, as revoked certificates expire by
themselves."""


class CertificateError(ValueError):
    """A malformed certificate or revocation list; the text says what is wrong."""


class Authority(NamedTuple):
    """A certificate authority: it vouches for the brokers of a mesh."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        """The certificate as PEM text. Every broker needs it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


class Issued(NamedTuple):
    """A broker's certificate and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        """The key, then the certificate, as PEM text: one file, so that both are replaced at once."""
        return key_pem(self.key) + self.certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: Key) -> bytes:
    """Return a private key as unencrypted PEM text (PKCS #8)."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_key() -> ec.EllipticCurvePrivateKey:
    """Generate a key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def make_authority(name: str, key: Key, begins: float, ends: float, number: int | None = None) -> Authority:
    """Make an authority with a self-signed certificate of `key`, valid from `begins` to `ends`.

    An Ed25519 key and a serial `number` give the same certificate, byte for byte, each time."""
    subject = _name(name)
    usage = _usage(signs=False, certifies=True)
    builder = (
        _certificate(subject, subject, key, begins, ends, number)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Authority(builder.sign(key, _hash(key)), key)


def issue(authority: Authority, identity: Identity, begins: float, ends: float, hosts: Iterable[str] = ()) -> Issued:
    """Issue a broker's certificate. `hosts` are the names and IP addresses by which HTTPS clients reach the broker.

    Raises `ValueError` for an identity or a host that a certificate cannot hold."""
    names = [x509.UniformResourceIdentifier(identity.uri), *(_host(host) for host in hosts)]
    key = new_key()
    builder = (
        _certificate(_name(identity.broker), authority.certificate.subject, key, begins, ends, None)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=True, certifies=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    return Issued(builder.sign(authority.key, _hash(authority.key)), key)


def issue_plain(authority: Authority, name: str, begins: float, ends: float, hosts: Sequence[str] | None) -> Issued:
    """Issue a certificate for MQTT over TLS, which identifies no broker: for a server with these `hosts`, or, if
    `hosts` is None, for a client that logs in as the user `name`.

    Raises `ValueError` for a name or a host that a certificate cannot hold."""
    key = new_key()
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if hosts is None else ExtendedKeyUsageOID.SERVER_AUTH
    named = [_host(host) for host in hosts] if hosts is not None else [x509.DNSName(name)]
    builder = (
        _certificate(_name(name), authority.certificate.subject, key, begins, ends, None)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=True, certifies=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName(named), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    return Issued(builder.sign(authority.key, _hash(authority.key)), key)


def presented(der: bytes) -> Presented:
    """Read a certificate (DER) that TLS has verified. Raises `CertificateError`."""
    try:
        return describe(x509.load_der_x509_certificate(der))
    except ValueError as error:
        raise CertificateError(f"a certificate that cannot be read: {error}") from None


def describe(certificate: x509.Certificate) -> Presented:
    """Return the identities, serial number and validity of a certificate. Raises `ValueError` for malformed
    extensions."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    return Presented(
        tuple(found for found in map(identity_in, uris) if found is not None),
        Serial(certificate.issuer.public_bytes(), certificate.serial_number),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return all certificates of a PEM text, at least one. Raises `CertificateError`."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError(f"no certificate: {error}") from None


def make_list(authority: Authority, revoked: Iterable[tuple[int, float]], number: int, now: float) -> bytes:
    """Make a revocation list (CRL) as PEM text.

    `revoked` has the serial number and the time of revocation of each certificate; `number` is that of the list and
    must grow with each new one."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(_time(now - SKEW))
        .next_update(_time(now + _LIST_HOLDS))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    for serial, since in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(_time(since)).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(authority.key, _hash(authority.key)).public_bytes(serialization.Encoding.PEM)


class Revoked(NamedTuple):
    """The content of one or several revocation lists."""

    serials: frozenset[Serial]
    numbers: dict[bytes, int]
    """By issuer (DER): the number of its newest list."""


_END = b"-----END X509 CRL-----"


def read_lists(pem: bytes, authorities: Sequence[x509.Certificate]) -> Revoked:
    """Read all revocation lists of a PEM text; an authority must have signed each. Raises `CertificateError`."""
    serials: set[Serial] = set()
    numbers: dict[bytes, int] = {}
    blocks = [block + _END for block in pem.split(_END)[:-1]]
    if not blocks:
        raise CertificateError("no revocation list (X509 CRL)")
    for block in blocks:
        try:
            found = x509.load_pem_x509_crl(block)
            number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        except (ValueError, x509.ExtensionNotFound) as error:
            raise CertificateError(f"a revocation list that cannot be read: {error}") from None
        if not any(_signed_by(found, authority) for authority in authorities):
            raise CertificateError("a revocation list that none of the authorities has signed")
        issuer = found.issuer.public_bytes()
        serials |= {Serial(issuer, entry.serial_number) for entry in found}
        numbers[issuer] = max(number, numbers.get(issuer, 0))
    return Revoked(frozenset(serials), numbers)


def _signed_by(found: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    if found.issuer != authority.subject:
        return False
    try:
        return found.is_signature_valid(key)  # type: ignore[arg-type]
    except (TypeError, InvalidSignature, ValueError):
        return False


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: Key, begins: float, ends: float, number: int | None
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(number if number is not None else x509.random_serial_number())
        .not_valid_before(_time(begins))
        .not_valid_after(_time(ends))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool, certifies: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certifies,
        crl_sign=certifies,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _hash(key: Key) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
