"""The OpenAPI document is of the routes there are, and its examples are answered as it says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from yarl import URL

from saps.frontend.web.http.openapi import TYPES, document
from tests.frontend.web.conftest import Site, Start

EXAMPLES = [
    (method, path, example)
    for path, operations in document("0")["paths"].items()
    for method, operation in operations.items()
    for example in operation["x-examples"]
]


async def test_every_route_is_in_the_document_and_no_other(site: Site) -> None:
    found = (await site.json("/openapi.json"))["paths"]
    assert site.broker.web is not None
    described = {(method.upper(), path) for path, operations in found.items() for method in operations}
    assert described == site.broker.web.routes
    assert all(operation["x-examples"] for operations in found.values() for operation in operations.values())


def test_what_is_referred_to_is_there() -> None:
    text = msgspec.json.encode(document("0")).decode()
    schemas = document("0")["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in schemas


async def test_every_example_is_answered_as_it_says(start: Start, tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    site = await start(auth__passwords=tmp_path / "passwords")
    for method, path, example in EXAMPLES:
        described = document("0")["paths"][path][method]["responses"][str(example["status"])]
        if "after" in example:
            async with site.session.post(URL(site.url + example["after"], encoded=True), data=b"21.5") as response:
                assert response.status < 300
        async with site.session.request(
            method,
            URL(site.url + example["request"], encoded=True),
            data=example.get("body"),
            headers=example.get("headers"),
        ) as response:
            assert response.status == example["status"], (example, await response.text())
            if response.status >= 400 and "content" in described:
                assert response.content_type == "application/problem+json"
                assert (await response.json(content_type=None))["status"] == response.status
            schema = described.get("content", {}).get("application/json", {}).get("schema", {})
            if name := schema.get("$ref", "").rpartition("/")[2]:
                msgspec.json.decode(await response.read(), type=TYPES[name])
