"""Answers as OpenAPI documents describe them; used by all HTTP interfaces."""

from __future__ import annotations

from typing import Any

PROBLEM = "application/problem+json"
"""RFC 9457."""


def problem_answer(text: str) -> dict[str, Any]:
    """An answer of 400 and above; the document has the schema `Problem`."""
    return {"description": text, "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def json_answer(text: str, schema: Any) -> dict[str, Any]:
    """An answer in JSON."""
    return {"description": text, "content": {"application/json": {"schema": schema}}}
