"""Checks signed tokens that clients send instead of a password.

They are JSON Web Tokens (RFC 7519), signed with keys of a JSON Web Key Set (RFC 7517). Any bytes give a token or a
reason for refusing them.

Each key serves one algorithm, which the token does not choose (RFC 8725, 3.1). It is the key's ``alg``, or follows from
the key's type: RS256, ES256 (ES384 or ES512, by the curve), EdDSA or HS256.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import jwt

from saps.frontend.mqtt.access.acl import Policy
from saps.frontend.mqtt.access.logins.grants import NOTHING, granted
from saps.frontend.mqtt.access.options import JwtOptions
from saps.frontend.mqtt.access.users import MAX_NAME_BYTES

if TYPE_CHECKING:
    from jwt.types import Options

SKEW = 5.0
"""Most seconds that an issuer's clock may be ahead. The tolerance holds for ``nbf``, and not for ``exp``."""
KEPT = 10_000
"""Most valid tokens in the cache, about 0.5 KiB each."""
MOST_KEYS = 100
"""Most keys read from a set."""
END_OF_TIME = 1e12
"""Times in a token must be below this limit, in seconds since the epoch."""
_SIGNED: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
    "enforce_minimum_key_length": True,
}
"""Options of `jwt.PyJWT.decode`. This module itself checks times, by the given clock, and the claim of the user."""


class TokenError(ValueError):
    """A token or a key set is not valid."""


class UnknownKeyError(TokenError):
    """The token's key is not in the key set. A newer set may contain it."""


class Token(NamedTuple):
    """A valid token."""

    user: str
    ends: float
    """The expiry ``exp``, in seconds since the epoch."""
    granted: Policy | None
    """Rights of the claim ``rights_claim``; None if the settings name no such claim."""


class Keys:
    """The keys of one JSON Web Key Set."""

    def __init__(self, text: bytes) -> None:
        """Parse a key set, without keys that are not for signatures or of an unknown kind.

        Raises `TokenError` if the text is no key set, or no usable key is left.
        """
        self._text = text
        try:
            found = json.loads(text)["keys"]
            self._keys = [key for each in found[:MOST_KEYS] if (key := _key(each)) is not None]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise TokenError(f"is no JSON Web Key Set: {error!r}") from None
        if not self._keys:
            raise TokenError("is no JSON Web Key Set with a key that can be used")
        self._by_id = {key.key_id: key for key in self._keys}

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self._text == other._text

    __hash__ = None  # type: ignore[assignment]

    def of(self, key_id: object) -> jwt.PyJWK:
        """Return the key with this key id, or the only key if `key_id` is None. Raises `UnknownKeyError`."""
        if key_id is None and len(self._keys) == 1:
            return self._keys[0]
        found = self._by_id.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            raise UnknownKeyError("names no key" if key_id is None else f"its key {key_id!r} is not known")
        return found


class Tokens:
    """Checks tokens and caches valid ones."""

    def __init__(self, options: JwtOptions, wall: Callable[[], float]) -> None:
        """Make a checker without keys. `wall`: seconds since the epoch."""
        self._options = options
        self._wall = wall
        self._keys: Keys | None = None
        self._good: dict[bytes, Token] = {}
        self._jwt = jwt.PyJWT()

    @property
    def keys(self) -> Keys | None:
        """The current keys; None before the first. New keys end no connection, but later logins need a token that they
        verify."""
        return self._keys

    @keys.setter
    def keys(self, keys: Keys | None) -> None:
        self._keys = keys
        self._good.clear()

    @property
    def bring_rights(self) -> bool:
        """Whether a claim of the tokens sets the clients' rights."""
        return bool(self._options.rights_claim)

    def are(self, password: bytes) -> bool:
        """Return whether a password has the form of a signed token: a JSON object in base64 and two more parts (RFC
        7515, 3.1)."""
        return password.startswith(b"ey") and password.count(b".") == 2

    def check(self, text: bytes) -> Token | str | None:
        """Check a token.

        Returns the valid token, or the reason for refusing it. Returns None if its key is not in the key set; a newer
        set may contain it.
        """
        digest = blake2b(text, digest_size=32).digest()
        token = self._good.get(digest)
        try:
            if token is None:
                token = self._verified(text)
                while len(self._good) >= KEPT:
                    del self._good[next(iter(self._good))]
                self._good[digest] = token
        except UnknownKeyError:
            return None
        except TokenError as error:
            return str(error)
        return token if token.ends > self._wall() else "has ended (exp)"

    def _verified(self, text: bytes) -> Token:
        if self._keys is None:
            raise UnknownKeyError("there are no keys yet")
        options = self._options
        try:
            key = self._keys.of(jwt.get_unverified_header(text).get("kid"))
            claims: dict[str, Any] = self._jwt.decode(
                text,
                key,
                algorithms=[key.algorithm_name],
                options={**_SIGNED, "verify_aud": bool(options.audience)},
                audience=options.audience or None,
                issuer=options.issuer or None,
            )
        except TokenError:
            raise
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenError(str(error)) from None
        if _seconds(claims, "nbf", 0.0) > self._wall() + SKEW:
            raise TokenError("is not good yet (nbf)")
        return Token(_user(claims, options.user_claim), _seconds(claims, "exp"), self._granted(claims))

    def _granted(self, claims: dict[str, Any]) -> Policy | None:
        claim = self._options.rights_claim
        if not claim:
            return None
        if claim not in claims:
            return NOTHING
        try:
            return granted(claims[claim])
        except ValueError as error:
            raise TokenError(f"{claim}: {error}") from None


def _key(member: object) -> jwt.PyJWK | None:
    """Return the key of a set's member, or None if it is not for signatures or of an unknown kind."""
    if not isinstance(member, dict) or member.get("use", "sig") != "sig":
        return None
    try:
        return jwt.PyJWK(member)
    except (jwt.PyJWTError, NotImplementedError, ValueError, TypeError):
        return None


def _seconds(claims: dict[str, Any], claim: str, default: float | None = None) -> float:
    """Return the NumericDate of a claim (RFC 7519, section 2). Raises `TokenError` if it is missing or no time."""
    value = claims.get(claim, default)
    if value is None:
        raise TokenError(f"{claim} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < END_OF_TIME:
        raise TokenError(f"{claim} is no time")
    return float(value)


def _user(claims: dict[str, Any], claim: str) -> str:
    user = claims.get(claim)
    if not isinstance(user, str):
        raise TokenError(f"{claim} names no user")
    if not user or len(user.encode(errors="surrogatepass")) > MAX_NAME_BYTES or not user.isprintable():
        raise TokenError(f"{claim} must be 1 to {MAX_NAME_BYTES} bytes of printable characters")
    return user
