"""MQTT.js in Node, in both protocol versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontend.mqtt.peers import need, run, running

pytestmark = pytest.mark.interop

PACKAGE = Path(__file__).resolve().parents[2] / "interop_js"


@pytest.mark.parametrize("version", [4, 5])
async def test_round_trip(version: int) -> None:
    need("node", "nodejs")
    if not (PACKAGE / "node_modules" / "mqtt").is_dir():
        pytest.skip("MQTT.js is not installed: run `npm ci` in tests/interop_js")
    async with running() as server:
        output = await run("node", str(PACKAGE / "roundtrip.mjs"), str(server.address[1]), str(version))
    result = json.loads(output)
    assert result["granted"] == [0, 2]
    for qos, message in enumerate(result["messages"]):
        assert (message["topic"], message["payload"], message["qos"]) == ("a/x", f"m{qos}", qos)
        if version == 5:
            assert message["properties"] == {"userProperties": {"key": "value"}, "contentType": "text"}
    assert (result["will"]["payload"], result["will"]["qos"]) == ("bye", 1)
    assert (result["retained"]["payload"], result["retained"]["retain"]) == ("still here", True)
