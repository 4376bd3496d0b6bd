"""Makes the response objects of OpenAPI documents, for all HTTP interfaces."""

from __future__ import annotations

from typing import Any

PROBLEM = "application/problem+json"
"""Media type of problem details (RFC 9457)."""


def problem_answer(text: str) -> dict[str, Any]:
    """Return the description of a response with a status of 400 or above. The document must have the schema
    `Problem`."""
    return {"description": text, "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def json_answer(text: str, schema: Any) -> dict[str, Any]:
    """Return the description of a JSON response with this schema."""
    return {"description": text, "content": {"application/json": {"schema": schema}}}
