"""Makes OpenAPI documents, their parameters and response objects, for all HTTP interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

PROBLEM = "application/problem+json"
"""Media type of problem details (RFC 9457)."""
TEXT = {"type": "string"}
"""The schema of a text."""


def document(
    title: str,
    version: str,
    text: str,
    types: Mapping[str, Any],
    paths: Callable[[dict[str, Any]], dict[str, Any]],
    schemes: Mapping[str, Any],
) -> dict[str, Any]:
    """Return an OpenAPI document (3.1).

    `types`: those of requests and answers, by the name of their schema. `paths` makes the paths from the schemas by
    name. `schemes`: the ways to log in, by name; a request may use one of them, or none.
    """
    schemas, components = msgspec.json.schema_components(types.values(), ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": text},
        "paths": paths(dict(zip(types, schemas, strict=True))),
        "components": {"schemas": components, "securitySchemes": dict(schemes)},
        "security": [{}, *[{name: []} for name in schemes]],
    }


def problem_answer(text: str) -> dict[str, Any]:
    """Return the description of a response with a status of 400 or above. The document must have the schema
    `Problem`."""
    return {"description": text, "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def json_answer(text: str, schema: Any) -> dict[str, Any]:
    """Return the description of a JSON response with this schema."""
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def in_path(name: str, text: str) -> dict[str, Any]:
    """Return a parameter in the path."""
    return {"name": name, "in": "path", "required": True, "schema": TEXT, "description": text}


def in_query(name: str, schema: Any, text: str, *, required: bool = False) -> dict[str, Any]:
    """Return a parameter of the query."""
    found = {"name": name, "in": "query", "schema": schema, "description": text}
    return {**found, "required": True} if required else found


def in_header(name: str, text: str) -> dict[str, Any]:
    """Return a parameter in a header."""
    return {"name": name, "in": "header", "schema": TEXT, "description": text}
