"""Reads credentials from the header Authorization: the users of the password file, as for MQTT."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import NamedTuple

from saps.frontend.web.http.problems import ProblemError


class Credentials(NamedTuple):
    """A user's name and password, neither of them checked. Both are None for an anonymous client, or for one with a
    certificate."""

    user: str | None = None
    password: bytes | None = None


ANONYMOUS = Credentials()


def credentials(header: str | None) -> Credentials:
    """Return the credentials in a header Authorization; None as `header` means `ANONYMOUS`.

    The scheme is ``Basic`` (RFC 7617) or ``Bearer`` (RFC 6750). A bearer token is a JSON Web Token, which becomes the
    password, or base64 of ``user:password`` as in ``Basic``. Raises `ProblemError` (401) for anything else.
    """
    if header is None:
        return ANONYMOUS
    scheme, _, token = header.partition(" ")
    if scheme.lower() not in ("basic", "bearer"):
        raise _fault(f"the scheme {scheme!r} is not known, only Basic and Bearer")
    if scheme.lower() == "bearer" and token.count(".") == 2:
        return Credentials(None, token.strip().encode("utf-8", "surrogateescape"))
    try:
        pair = urlsafe_b64decode(_padded(token.strip()))
        user, colon, password = pair.partition(b":")
        name = user.decode()
    except ValueError:
        raise _fault("what follows the scheme is not base64 of user:password") from None
    if not colon:
        raise _fault("there is no colon between user and password")
    return Credentials(name, password)


def _padded(token: str) -> bytes:
    """Return base64 of either alphabet in the alphabet for URLs, with padding. Raises `ValueError` for other text."""
    plain = token.rstrip("=").replace("+", "-").replace("/", "_")
    if not plain.replace("-", "").replace("_", "").isalnum() or not plain.isascii():
        raise ValueError("not base64")
    return (plain + "=" * (-len(plain) % 4)).encode()


def _fault(detail: str) -> ProblemError:
    return ProblemError(401, "Unauthorized", detail, field="Authorization")
