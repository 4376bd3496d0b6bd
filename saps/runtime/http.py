"""Helpers for HTTP interfaces: bearer tokens (RFC 6750) and problem details (RFC 9457)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from saps.openapi import PROBLEM


def has_token(request: web.Request, token: bytes) -> bool:
    """Return whether the request carries this token as ``Authorization: Bearer``. Headers may contain any bytes. The
    comparison takes constant time for tokens of the same length."""
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode("utf-8", "surrogateescape"), token)


def problem_response(status: int, problem: object, headers: Mapping[str, str] | None = None) -> web.Response:
    """Make a response from problem details; `problem` is a struct or a mapping of their members."""
    members = {name: _text(value) for name, value in msgspec.to_builtins(problem).items()}
    return web.Response(body=msgspec.json.encode(members), status=status, content_type=PROBLEM, headers=headers)


def _text(value: Any) -> Any:
    """Escape what JSON cannot encode: a quoted header may contain any bytes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
