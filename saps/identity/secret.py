"""An authority out of a pre-shared secret, for small meshes: who knows the secret can vouch for any broker.

The secret is stretched (scrypt) into an Ed25519 key. Its certificate is the same on all brokers, bit by bit, and each
broker issues one of its own with it. So such a mesh uses the same TLS as one with an authority, and nothing that is
derived from the secret ever leaves a process but signatures.
"""

from __future__ import annotations

import hashlib
import secrets

from cryptography.hazmat.primitives.asymmetric import ed25519

from saps.identity.certificates import Authority, make_authority

SHORTEST = 32
"""Characters of a secret at least. Whoever connects sees a signature, with which secrets can be tried at leisure."""
_SALT = b"SAPS mesh authority, version 1"
_COST, _BLOCK = 1 << 15, 8
"""scrypt (RFC 7914): 32 MiB and about 0.1 s, once at a start."""
_BEGINS, _ENDS = 1577836800.0, 253402300799.0
"""2020-01-01 and 9999-12-31: the secret itself has no end."""


class SecretError(ValueError):
    """A secret that cannot be used."""


def new_secret() -> str:
    """A secret of 256 random bits, as text."""
    return secrets.token_urlsafe(32)


def authority_of(secret: str) -> Authority:
    """The authority that a secret stands for. Raises `SecretError`."""
    if len(secret) < SHORTEST:
        raise SecretError(f"has {len(secret)} characters, at least {SHORTEST} are needed: `saps ca secret` makes one")
    seed = hashlib.scrypt(secret.encode(), salt=_SALT, n=_COST, r=_BLOCK, p=1, maxmem=1 << 26, dklen=32)
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    return make_authority("SAPS mesh with a shared secret", key, _BEGINS, _ENDS, number=1)
