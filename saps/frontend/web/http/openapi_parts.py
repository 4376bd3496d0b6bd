"""Builds the parts of the OpenAPI document."""

from __future__ import annotations

from typing import Any

from saps.openapi import json_answer, problem_answer

FLAG = {"type": "boolean", "default": False}
SEEN = "Only for clients that may receive the topic $SYS/saps/mesh."


def state(named: dict[str, Any], name: str, summary: str, text: str, request: str) -> dict[str, Any]:
    """Return an operation that reads a part of the mesh's state. `name`: its type in `named`; `text`: description of
    the answer; `request`: an example answered with 200."""
    refusals = (400, 401, 403, 503, 504)
    return operation(summary, SEEN, {200: json_answer(text, named[name])}, refusals, [], [example(request, 200)])


def operation(
    summary: str,
    text: str,
    answers: dict[int, Any],
    refusals: tuple[int, ...],
    parameters: list[Any],
    examples: list[Any],
) -> dict[str, Any]:
    """Return one operation. `answers`: responses by status. `refusals`: statuses answered with a problem."""
    responses = {str(status): answer for status, answer in answers.items()}
    responses |= {str(status): problem_answer(REFUSALS[status]) for status in refusals}
    return {
        "summary": summary,
        "description": text,
        "parameters": parameters,
        "responses": responses,
        "x-examples": examples,
    }


REFUSALS = {
    400: "Something of the request is wrong; `field` says what.",
    401: "Name or password are missing or wrong.",
    403: "Not permitted.",
    404: "There is nothing.",
    413: "Too large.",
    426: "This is no page.",
    429: "A limit of this client or of the broker is reached.",
    503: "The broker cannot do it now.",
    504: "The mesh does not answer.",
}


def example(
    request: str, status: int, *, body: str = "", headers: dict[str, str] | None = None, after: str = ""
) -> dict[str, Any]:
    """Return an example: a request and the status of its answer. `after`: a publication to send before it."""
    found = {"request": request, "status": status, "body": body, "headers": headers, "after": after}
    return {name: value for name, value in found.items() if value}
