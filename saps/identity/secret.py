"""Derives an authority from a pre-shared secret, for small meshes: whoever knows the secret can pose as any broker.

scrypt stretches the secret into an Ed25519 key. The authority's certificate is the same on all brokers, byte for byte,
and each broker uses it to issue a certificate to itself. Such a mesh therefore uses the same TLS as one with a separate
authority, and nothing derived from the secret leaves a process except signatures.
"""

from __future__ import annotations

import hashlib
import secrets

from cryptography.hazmat.primitives.asymmetric import ed25519

from saps.identity.certificates import Authority, make_authority

SHORTEST = 32
"""Least characters of a secret. A client that connects sees a signature, against which it can try secrets offline."""
_SALT = b"SAPS mesh authority, version 1"
_COST, _BLOCK = 1 << 15, 8
"""scrypt (RFC 7914): 32 MiB and about 0.1 s, once at a start."""
_BEGINS, _ENDS = 1577836800.0, 253402300799.0
"""2020-01-01 and 9999-12-31: the secret itself has no end."""


class SecretError(ValueError):
    """An unusable secret; the text says why."""


def new_secret() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def authority_of(secret: str) -> Authority:
    """Derive the authority from a secret; takes about 0.1 s. Raises `SecretError` for a short one."""
    if len(secret) < SHORTEST:
        raise SecretError(f"has {len(secret)} characters, at least {SHORTEST} are needed: `saps ca secret` makes one")
    seed = hashlib.scrypt(secret.encode(), salt=_SALT, n=_COST, r=_BLOCK, p=1, maxmem=1 << 26, dklen=32)
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    return make_authority("SAPS mesh with a shared secret", key, _BEGINS, _ENDS, number=1)
