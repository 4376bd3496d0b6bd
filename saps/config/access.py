"""The settings of access control: who may attach as an MQTT client, TLS, policies, bans, the audit log
(docs/security.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import SettingError, knob
from saps.frontend.mqtt.access.options import AuthOptions, TlsOptions

_AUTH = AuthOptions()
_TLS = TlsOptions()


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may attach as an MQTT client, and do what (``[auth]``)."""

    passwords: Annotated[
        str, knob("Password file, written by `saps passwd`; none: user names are not looked at. Read again on SIGHUP")
    ] = _AUTH.passwords
    acl: Annotated[str, knob("File of access rules; none: everything is allowed. Read again on SIGHUP")] = _AUTH.acl
    anonymous: Annotated[
        Literal["loopback", "always", "never"], knob("From where clients without a user are let in")
    ] = _AUTH.anonymous
    hash_threads: Annotated[
        int,
        knob(
            "Passwords checked at the same time",
            unit="threads",
            cost="a core each while logins come, 16 MiB",
            ge=1,
            le=64,
        ),
    ] = _AUTH.hash_threads
    hash_queue: Annotated[
        int,
        knob(
            "Clients that may wait for a password check, a quarter of them from one address",
            unit="clients",
            cost="the last one waits about 50 ms longer for each",
            ge=1,
            le=100000,
        ),
    ] = _AUTH.hash_queue

    def options(self) -> AuthOptions:
        """The same, as the MQTT frontend takes it."""
        return msgspec.convert(self, AuthOptions, from_attributes=True)


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MQTT over TLS (``[tls]``)."""

    listen: Annotated[tuple[Address, ...], knob("Where MQTT clients attach over TLS, such as 0.0.0.0:8883")] = ()
    certificate: Annotated[
        str, knob("File (PEM) with the broker's certificate and its chain. Read again on SIGHUP")
    ] = _TLS.certificate
    key: Annotated[
        str, knob("File (PEM) with its private key; none: it is in the file of the certificate. Read again on SIGHUP")
    ] = _TLS.key
    minimum_version: Annotated[Literal["1.2", "1.3"], knob("Oldest version of TLS accepted")] = _TLS.minimum_version
    client_certificates: Annotated[
        Literal["none", "optional", "required"], knob("Are clients asked for a certificate, or refused without one")
    ] = _TLS.client_certificates
    client_ca: Annotated[
        str, knob("File (PEM) with the certificates of those who may sign clients' certificates. Read again on SIGHUP")
    ] = _TLS.client_ca
    client_revoked: Annotated[
        str,
        knob(
            "File (PEM) with a revocation list (CRL) of each of these. Read again on SIGHUP; standing "
            "connections are kept"
        ),
    ] = _TLS.client_revoked
    user_from: Annotated[
        Literal["cn", "san"],
        knob("What names the user in a client's certificate: the common name, or the first subject alternative name"),
    ] = _TLS.user_from

    def options(self) -> TlsOptions | None:
        """The same, as the MQTT frontend takes it; None without a TLS listener."""
        return msgspec.convert(self, TlsOptions, from_attributes=True) if self.listen else None


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which clusters must not carry a topic, and which brokers must not receive it; nothing unless there is a file."""

    file: Annotated[
        tuple[str, ...],
        knob(
            "Policy files, .xml or TOML. The same on every broker and the controller. Read again on SIGHUP",
            cost="retained messages and wills of the topics named stay at their publisher's broker",
        ),
    ] = ()


class OperationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of operators' work (``[operations]``)."""

    audit: Annotated[
        str,
        knob(
            "File to which every change, login and refused login is appended as a line of JSON; none: the latest "
            "1,000 of each are kept in memory. Opened again on SIGHUP",
            cost="about 200 bytes a login",
        ),
    ] = ""
    bans: Annotated[
        str,
        knob(
            "File in which bans are kept; none: beside storage.file, or if there is none in memory, from where other "
            "brokers get them after a restart"
        ),
    ] = ""


def tls_fault(tls: TlsSettings) -> SettingError | None:
    """The first pair of TLS settings, each good alone, that cannot be used together, or None."""
    if tls.listen and not tls.certificate:
        return SettingError("tls.listen", "needs tls.certificate")
    if tls.client_certificates != "none" and not tls.client_ca:
        return SettingError("tls.client_certificates", "needs tls.client_ca to verify clients' certificates")
    return None
