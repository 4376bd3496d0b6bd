"""Users that show a signed token instead of a password: JSON Web Tokens (RFC 7519), with the keys of a JSON Web Key Set
(RFC 7517). Any bytes give a token or a `TokenError`.

Each key is used for one algorithm: its own ``alg``, or by its type RS256, ES256 (ES384, ES512) by its curve, EdDSA, or
HS256 (RFC 8725, 3.1: the token does not choose).
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
"""Seconds that an issuer's clock may be ahead: for ``nbf`` only, as a token that ends, ends."""
KEPT = 10_000
"""Tokens known to be good, about 0.5 KiB each."""
MOST_KEYS = 100
"""Keys of one set."""
END_OF_TIME = 1e12
"""Seconds since the epoch that no token names."""
_SIGNED: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
    "enforce_minimum_key_length": True,
}
"""Times are checked here, by a clock that is handed in, and the user's claim."""


class TokenError(ValueError):
    """A token that lets nobody in, or a key set that cannot be used."""


class UnknownKeyError(TokenError):
    """A token signed with a key that is not in the set: there may be newer keys."""


class Token(NamedTuple):
    """A good token."""

    user: str
    ends: float
    """``exp``, in seconds since the epoch."""
    granted: Policy | None
    """What its claim allows; None: it is not asked."""


class Keys:
    """The keys of one set."""

    def __init__(self, text: bytes) -> None:
        """Raises `TokenError`. Keys that are not for signatures, or of a kind not known here, are left out."""
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
        """The key of this name, or the only one. Raises `UnknownKeyError`."""
        if key_id is None and len(self._keys) == 1:
            return self._keys[0]
        found = self._by_id.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            raise UnknownKeyError("names no key" if key_id is None else f"its key {key_id!r} is not known")
        return found


class Tokens:
    """Checks tokens, and remembers those that were good."""

    def __init__(self, options: JwtOptions, wall: Callable[[], float]) -> None:
        """`wall`: seconds since the epoch."""
        self._options = options
        self._wall = wall
        self._keys: Keys | None = None
        self._good: dict[bytes, Token] = {}
        self._jwt = jwt.PyJWT()

    @property
    def keys(self) -> Keys | None:
        """In force; None: none have come yet. New ones end no connection, and tokens signed with others are no good."""
        return self._keys

    @keys.setter
    def keys(self, keys: Keys | None) -> None:
        self._keys = keys
        self._good.clear()

    @property
    def bring_rights(self) -> bool:
        """A claim says what a client may do."""
        return bool(self._options.rights_claim)

    def are(self, password: bytes) -> bool:
        """It has the form of a signed token: a JSON object in base64, and two more parts (RFC 7515, 3.1)."""
        return password.startswith(b"ey") and password.count(b".") == 2

    def check(self, text: bytes) -> Token | str | None:
        """What a token says, or why it lets nobody in; None: its key is not in the set, but may be in a newer one."""
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
    """A member of a set; None if it is not for signatures, or of a kind not known here."""
    if not isinstance(member, dict) or member.get("use", "sig") != "sig":
        return None
    try:
        return jwt.PyJWK(member)
    except (jwt.PyJWTError, NotImplementedError, ValueError, TypeError):
        return None


def _seconds(claims: dict[str, Any], claim: str, default: float | None = None) -> float:
    """A NumericDate (RFC 7519, section 2)."""
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
