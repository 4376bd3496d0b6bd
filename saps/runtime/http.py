"""HTTP interfaces: the check of a bearer token (RFC 6750), and problems (RFC 9457)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from saps.openapi import PROBLEM


def has_token(request: web.Request, token: bytes) -> bool:
    """The request carries this token as ``Authorization: Bearer``. Headers may be any bytes; takes as long for every
    wrong token of a length."""
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode("utf-8", "surrogateescape"), token)


def problem_response(status: int, problem: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """A problem as an answer. `problem`: its members, as a struct or a mapping."""
    members = {name: _text(value) for name, value in msgspec.to_builtins(problem).items()}
    return web.Response(body=msgspec.json.encode(members), status=status, content_type=PROBLEM, headers=headers)


def _text(value: Any) -> Any:
    """A value that can be encoded: what is quoted of a header need not be text."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
