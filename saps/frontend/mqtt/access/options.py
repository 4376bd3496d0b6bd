"""What the settings ``[auth]`` and ``[tls]`` come to, for the parts that use them."""

from __future__ import annotations

from typing import Literal

import msgspec

Anonymous = Literal["loopback", "always", "never"]
Certificates = Literal["none", "optional", "required"]


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
    user_from: Literal["cn", "san"] = "cn"
    """What in a client's certificate is its user name: the common name, or the first subject alternative name."""
