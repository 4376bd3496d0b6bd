"""Holds the values of the settings ``[auth]``, ``[tls]`` and ``[proxy]``."""

from __future__ import annotations

from typing import Literal

import msgspec

Anonymous = Literal["loopback", "always", "never"]
Certificates = Literal["none", "optional", "required"]
UserFrom = Literal["cn", "san", "dns", "email", "uri", "dn", "fingerprint"]


class JwtOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for clients that log in with a token instead of a password."""

    keys: str = ""
    """Path or URL of the key set; empty: the broker accepts no tokens."""
    issuer: str = ""
    """Required ``iss`` of a token; empty: any."""
    audience: str = ""
    """Required member of a token's ``aud``; empty: any."""
    user_claim: str = "sub"
    """Claim with the user name."""
    rights_claim: str = ""
    """Claim with the client's rights; empty: only the ACL file sets them."""
    refresh: float = 300.0
    """Interval between two requests to a URL of keys, in seconds."""
    ca_file: str = ""
    """Path of trusted CA certificates (PEM) for a URL; empty: the system's."""


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for an HTTP service that decides logins and rights."""

    login: str = ""
    """URL for the check of a login; empty: none."""
    rights: str = ""
    """URL for the rights of a client that has logged in; empty: none."""
    topics: str = ""
    """URL for the check of each topic of a publication and each filter of a subscription; empty: none."""
    token_file: str = ""
    """Path of a file; the broker sends its first line as bearer token. Empty: no token."""
    ca_file: str = ""
    """Path of trusted CA certificates (PEM); empty: the system's."""
    timeout: float = 3.0
    """Timeout of a request in seconds; after it the broker refuses the client."""
    cache: float = 60.0
    """Longest time that an answer is cached, in seconds."""
    waiting: int = 256
    """Most requests under way; the broker answers further clients that it is busy."""


class AuthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for logins and rights."""

    passwords: str = ""
    """Path of the password file; empty: no file, and user names are not checked."""
    acl: str = ""
    """Path of the ACL file; empty: no file, and every client has all rights."""
    anonymous: Anonymous = "loopback"
    """Origins from which clients may connect without a name."""
    hash_threads: int = 1
    """Number of threads that check passwords. Each check takes a core and 16 MiB for about 50 ms."""
    hash_queue: int = 64
    """Most clients whose password check waits or runs; the broker answers further clients that it is busy."""
    jwt: JwtOptions = JwtOptions()
    http: HttpOptions = HttpOptions()


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all TLS listeners share."""

    certificate: str = ""
    """Path of the server's certificate with its chain (PEM)."""
    key: str = ""
    """Path of the private key (PEM, without a passphrase); empty: the key is in the file of the certificate."""
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    client_certificates: Certificates = "none"
    """Whether the broker requests a certificate from clients, or requires one."""
    client_ca: str = ""
    """Path of the CA certificates (PEM) that sign clients' certificates."""
    client_revoked: str = ""
    """Path of the revocation lists (CRL, PEM), one from each CA; empty: none."""
    user_from: UserFrom = "cn"
    """The part of a client's certificate that names the user: common name, first or only subject alternative name,
    whole subject (RFC 4514), or SHA-256 of the certificate in hexadecimal digits."""
    user_pattern: str = ""
    """Regular expression that must match this whole part. Its group, if any, is the user name. Empty: any part."""


class ProxyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for the listeners of load balancers that use the PROXY protocol."""

    trusted: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """IP addresses or networks of the load balancers."""
    tls: bool = False
    """Whether the client begins a TLS handshake after the header."""
    certificates: bool = False
    """Whether the common name in the header is the client's user. The load balancer has verified that certificate."""
