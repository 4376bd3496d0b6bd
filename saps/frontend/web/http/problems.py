"""How the Web frontend says no: problem details (RFC 9457), and the status that goes with each reason of MQTT."""

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
"""The status of an answer by the reason the connection machine gave; 500 for any other."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every answer of 400 and above."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    field: str | None = None
    """What of the request is wrong: the name of a parameter, a header, a member of the body."""
    reason: int | None = None
    """The reason code of MQTT 5.0 (2.4) an MQTT client would have been told."""


class ProblemError(Exception):
    """A request is answered by a problem."""

    def __init__(self, status: int, title: str, detail: str | None = None, **more: Any) -> None:
        super().__init__(title)
        self.problem = Problem(status=status, title=title, detail=detail, **more)


def refused(reason: int, detail: str | None = None) -> ProblemError:
    """The problem for a reason of 0x80 and above."""
    known = Reason(reason) if reason in Reason._value2member_map_ else Reason.UNSPECIFIED_ERROR
    return ProblemError(STATUS.get(known, 500), words(known), detail, reason=int(reason))


def words(reason: int) -> str:
    """A reason as text: ``not authorized``."""
    if reason in Reason._value2member_map_:
        return Reason(reason).name.lower().replace("_", " ")
    return f"reason 0x{reason:02x}"


def answer_problem(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    """The problem as an answer; a 401 asks for a name and a password."""
    found = dict(headers or {})
    if problem.status == 401:
        found["WWW-Authenticate"] = 'Basic realm="saps", charset="UTF-8"'
    if problem.status in (429, 503):
        found["Retry-After"] = "1"
    return problem_response(problem.status, problem, found)
