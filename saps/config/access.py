"""The settings of access control: logins, rights, TLS, proxies, policies, bans and the audit log (docs/security.md)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from saps.config.address import Address
from saps.config.knobs import SettingError, knob
from saps.frontend.mqtt.access.logins.urls import keys_fault, url_fault
from saps.frontend.mqtt.access.options import AuthOptions, HttpOptions, JwtOptions, ProxyOptions, TlsOptions, UserFrom
from saps.frontend.mqtt.access.origin import pattern_fault
from saps.frontend.mqtt.access.proxy_header import network_fault

_AUTH = AuthOptions()
_JWT = JwtOptions()
_HTTP = HttpOptions()
_TLS = TlsOptions()
_PROXY = ProxyOptions()


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logins with a signed token (JWT) instead of a password (``[auth.jwt]``)."""

    keys: Annotated[
        str,
        knob(
            "Keys that sign users' tokens (JWKS): a file, looked at once a second, or https://",
            check=keys_fault,
        ),
    ] = _JWT.keys
    issuer: Annotated[str, knob("What a token's iss must be; empty: anything")] = _JWT.issuer
    audience: Annotated[str, knob("What a token's aud must contain; empty: anything")] = _JWT.audience
    user_claim: Annotated[str, knob("Claim of a token that names the user")] = _JWT.user_claim
    rights_claim: Annotated[
        str,
        knob("Claim with the client's rights, within those of auth.acl; empty: auth.acl alone"),
    ] = _JWT.rights_claim
    refresh: Annotated[
        float,
        knob(
            "Interval at which a URL is asked for keys",
            unit="s",
            cost="a key that is taken out is believed longer",
            ge=1,
            le=86400,
        ),
    ] = _JWT.refresh
    ca_file: Annotated[str, knob("Certificates (PEM) to trust at a URL; empty for those of the system")] = _JWT.ca_file


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP service that checks logins and grants rights (``[auth.http]``)."""

    login: Annotated[
        str, knob("https:// address asked if a user may come in that auth.passwords does not have", check=url_fault)
    ] = _HTTP.login
    rights: Annotated[str, knob("https:// address asked what a client may do", check=url_fault)] = _HTTP.rights
    topics: Annotated[
        str,
        knob(
            "https:// address asked about each topic a client publishes to and each filter it subscribes to",
            cost="a client's first publication to a topic waits for the answer",
            check=url_fault,
        ),
    ] = _HTTP.topics
    token_file: Annotated[str, knob("File whose first line is shown as bearer token")] = _HTTP.token_file
    ca_file: Annotated[str, knob("Certificates (PEM) to trust; empty for those of the system")] = _HTTP.ca_file
    timeout: Annotated[
        float,
        knob(
            "Time after which a client is refused without an answer",
            unit="s",
            cost="clients wait longer",
            gt=0,
            le=60,
        ),
    ] = _HTTP.timeout
    cache: Annotated[
        float,
        knob("How long an answer is remembered", unit="s", cost="changes are seen later", ge=0, le=86400),
    ] = _HTTP.cache
    waiting: Annotated[
        int,
        knob(
            "Questions under way, a quarter of them for one address",
            unit="questions",
            cost="load on the service",
            ge=1,
            le=10000,
        ),
    ] = _HTTP.waiting


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The logins and rights of MQTT clients (``[auth]``)."""

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
    jwt: JwtSettings = JwtSettings()
    http: HttpSettings = HttpSettings()

    def options(self) -> AuthOptions:
        """Return these settings in the form that the MQTT frontend takes."""
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
            "File (PEM) with a revocation list (CRL) of each of these. Read again on SIGHUP, which ends the "
            "connections of those it names"
        ),
    ] = _TLS.client_revoked
    user_from: Annotated[
        UserFrom,
        knob(
            "What names the user in a client's certificate: common name, first alternative name, the only DNS name, "
            "e-mail address or URI, whole subject, or SHA-256"
        ),
    ] = _TLS.user_from
    user_pattern: Annotated[
        str,
        knob(
            "Regular expression that the whole name must fit; its group, if it has one, is the user",
            check=pattern_fault,
        ),
    ] = _TLS.user_pattern

    def options(self) -> TlsOptions | None:
        """Return these settings in the form that the MQTT frontend takes, or None without a TLS listener."""
        return msgspec.convert(self, TlsOptions, from_attributes=True) if self.listen else None


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MQTT behind a load balancer, which sends each client's address by the PROXY protocol (``[proxy]``)."""

    listen: Annotated[
        tuple[Address, ...],
        knob("Where load balancers attach that speak the PROXY protocol"),
    ] = ()
    trusted: Annotated[
        tuple[str, ...],
        knob(
            "Addresses or networks of the load balancers; others are cut off",
            check=network_fault,
        ),
    ] = _PROXY.trusted
    tls: Annotated[bool, knob("The load balancer passes TLS through")] = _PROXY.tls
    certificates: Annotated[
        bool,
        knob("The common name of a certificate that the load balancer has verified is the user"),
    ] = _PROXY.certificates

    def options(self) -> ProxyOptions:
        """Return these settings in the form that the MQTT frontend takes."""
        return msgspec.convert(self, ProxyOptions, from_attributes=True)


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policies: clusters that must not carry a topic, and brokers that must not receive it. Without a file there
    are none."""

    file: Annotated[
        tuple[str, ...],
        knob(
            "Policy files, .xml or TOML. The same on every broker and the controller. Read again on SIGHUP",
            cost="retained messages and wills of the topics named stay at their publisher's broker",
        ),
    ] = ()


class OperationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of the operators' work: audit log and bans (``[operations]``)."""

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
            "File in which bans are kept; none: next to storage.file, or if there is none in memory, from where other "
            "brokers get them after a restart"
        ),
    ] = ""


def tls_fault(tls: TlsSettings, proxy: ProxySettings) -> SettingError | None:
    """Return the first fault of TLS settings that are valid alone but cannot be used together, or None."""
    if proxy.listen and proxy.tls and not tls.certificate:
        return SettingError("proxy.tls", "needs tls.certificate")
    if proxy.tls and proxy.certificates:
        return SettingError("proxy.certificates", "is for load balancers that speak TLS themselves, not for proxy.tls")
    if tls.listen and not tls.certificate:
        return SettingError("tls.listen", "needs tls.certificate")
    if tls.client_certificates != "none" and not tls.client_ca:
        return SettingError("tls.client_certificates", "needs tls.client_ca to verify clients' certificates")
    return None
