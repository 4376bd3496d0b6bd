"""What the settings ``[auth]``, ``[tls]`` and ``[proxy]`` come to, for the parts that use them."""

from __future__ import annotations

from typing import Literal

import msgspec

Anonymous = Literal["loopback", "always", "never"]
Certificates = Literal["none", "optional", "required"]
UserFrom = Literal["cn", "san", "dns", "email", "uri", "dn", "fingerprint"]


class JwtOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Users that show a token instead of a password."""

    keys: str = ""
    """Path or URL of the key set; empty: there are no tokens."""
    issuer: str = ""
    """What a token's ``iss`` must be; empty: anything."""
    audience: str = ""
    """What must be in a token's ``aud``; empty: anything."""
    user_claim: str = "sub"
    """The claim that names the user."""
    rights_claim: str = ""
    """The claim that says what the client may do; empty: the ACL file says it alone."""
    refresh: float = 300.0
    """Seconds between two questions to a URL."""
    ca_file: str = ""
    """Path of certificates, PEM, to trust at a URL; empty: those of the system."""


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP service that knows users and rights."""

    login: str = ""
    """URL that is asked if a user may come in; empty: none."""
    rights: str = ""
    """URL that is asked what a client may do which has been let in; empty: none."""
    topics: str = ""
    """URL that is asked if a client may publish to a topic or subscribe to a filter, for each; empty: none."""
    token_file: str = ""
    """Path of a file whose first line the broker shows as bearer; empty: nothing."""
    ca_file: str = ""
    """Path of certificates, PEM, to trust; empty: those of the system."""
    timeout: float = 3.0
    """Seconds until a question without an answer is given up, and the client refused."""
    cache: float = 60.0
    """Seconds for which an answer is remembered."""
    waiting: int = 256
    """Questions under way; a client beyond it is told that the server is busy."""


class AuthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked for a name, and by what files."""

    passwords: str = ""
    """Path of the password file; empty: none, user names are not looked at."""
    acl: str = ""
    """Path of the ACL file; empty: none, every client that is let in may do everything."""
    anonymous: Anonymous = "loopback"
    """From where clients may attach without a name."""
    hash_threads: int = 1
    """Passwords checked at the same time. Each takes a core and 16 MiB for about 50 ms."""
    hash_queue: int = 64
    """Clients that may wait for their password to be checked; one more is told that the server is busy."""
    jwt: JwtOptions = JwtOptions()
    http: HttpOptions = HttpOptions()


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS listeners. All of them share these."""

    certificate: str = ""
    """Path of the server's certificate with its chain, PEM."""
    key: str = ""
    """Path of its private key, PEM, without a passphrase; empty: in the file of the certificate."""
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    client_certificates: Certificates = "none"
    """Are clients asked for a certificate, and refused without one?"""
    client_ca: str = ""
    """Path of the certificates, PEM, of those who may sign clients' certificates."""
    client_revoked: str = ""
    """Path of the revocation lists (CRL), PEM, one of each of them; empty: none."""
    user_from: UserFrom = "cn"
    """What in a client's certificate is its user name: common name, first or only subject alternative name, whole
    subject (RFC 4514), or SHA-256 of the certificate in hexadecimal digits."""
    user_pattern: str = ""
    """A regular expression that this must fit; its group, if it has one, is the user name. Empty: any."""


class ProxyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The listeners for load balancers that speak the PROXY protocol."""

    trusted: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """Addresses or networks of the load balancers."""
    tls: bool = False
    """Behind the header the client begins TLS."""
    certificates: bool = False
    """The common name in the header, of a certificate that the load balancer has verified, is the client's user."""
