"""Error answers of the Web frontend: problem details (RFC 9457), and the HTTP status of each MQTT reason."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from saps.frontend.mqtt.codec.reasons import Reason
from saps.runtime.http import problem_response

STATUS = {
    Reason.MALFORMED_PACKET: 400,
    Reason.PROTOCOL_ERROR: 400,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 400,
    Reason.BAD_USER_NAME_OR_PASSWORD: 401,
    Reason.NOT_AUTHORIZED: 403,
    Reason.BANNED: 403,
    Reason.SERVER_BUSY: 503,
    Reason.SERVER_SHUTTING_DOWN: 503,
    Reason.SERVER_UNAVAILABLE: 503,
    Reason.USE_ANOTHER_SERVER: 503,
    Reason.SERVER_MOVED: 503,
    Reason.SESSION_TAKEN_OVER: 409,
    Reason.TOPIC_FILTER_INVALID: 400,
    Reason.TOPIC_NAME_INVALID: 400,
    Reason.PACKET_TOO_LARGE: 413,
    Reason.QUOTA_EXCEEDED: 429,
    Reason.CONNECTION_RATE_EXCEEDED: 429,
}
"""HTTP status by the connection machine's reason; 500 for all other reasons."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every answer of 400 and above."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    field: str | None = None
    """Name of the parameter, header or member of the body that is wrong."""
    reason: int | None = None
    """The reason code that an MQTT client would have received (MQTT 5.0, 2.4)."""


class ProblemError(Exception):
    """Raised by handlers to answer a request with a problem."""

    def __init__(self, status: int, title: str, detail: str | None = None, **more: Any) -> None:
        """`more`: further fields of `Problem`."""
        super().__init__(title)
        self.problem = Problem(status=status, title=title, detail=detail, **more)


def refused(reason: int, detail: str | None = None) -> ProblemError:
    """Return the error for an MQTT reason of 0x80 and above."""
    known = Reason(reason) if reason in Reason._value2member_map_ else Reason.UNSPECIFIED_ERROR
    return ProblemError(STATUS.get(known, 500), words(known), detail, reason=int(reason))


def words(reason: int) -> str:
    """Return an MQTT reason as text, such as ``not authorized``."""
    if reason in Reason._value2member_map_:
        return Reason(reason).name.lower().replace("_", " ")
    return f"reason 0x{reason:02x}"


def answer_problem(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    """Return a problem as an answer. A 401 asks for name and password; 429 and 503 have a Retry-After of 1 s."""
    found = dict(headers or {})
    if problem.status == 401:
        found["WWW-Authenticate"] = 'Basic realm="saps", charset="UTF-8"'
    if problem.status in (429, 503):
        found["Retry-After"] = "1"
    return problem_response(problem.status, problem, found)
