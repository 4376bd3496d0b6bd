"""Tokens for tests: keys of every kind, sets of them, and what they sign."""

from __future__ import annotations

import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | bytes

KINDS: dict[str, Any] = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "HS256": lambda: b"a secret of thirty-two bytes, at least",
}


class Issuer:
    """Somebody with one key."""

    def __init__(self, key_id: str | None = "k1", kind: str = "ES256") -> None:
        self.key_id, self.kind = key_id, kind
        self.key: Private = KINDS[kind]()

    def public(self, **fields: Any) -> dict[str, Any]:
        """The key as a member of a set."""
        key = self.key
        if isinstance(key, bytes):
            made = HMACAlgorithm.to_jwk(key, as_dict=True)
        elif isinstance(key, rsa.RSAPrivateKey):
            made = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            made = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        else:
            made = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return dict(made) | ({"kid": self.key_id} if self.key_id else {}) | fields

    def token(self, sub: object = "ann", *, exp: object = 2000, **claims: Any) -> bytes:
        headers = {"kid": self.key_id} if self.key_id else None
        payload = {"sub": sub, "exp": exp, **claims}
        return jwt.api_jws.encode(json.dumps(payload).encode(), self.key, self.kind, headers).encode()


def key_set(*members: Issuer | dict[str, Any]) -> bytes:
    """A key set as text."""
    keys = [each.public() if isinstance(each, Issuer) else each for each in members]
    return json.dumps({"keys": keys}).encode()
