"""MQTT.js in both protocol versions: in Node over TCP and WebSocket, and in a page in Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.frontend.mqtt.peers import need, run, running
from tests.frontend.mqtt.websockets import web_server

pytestmark = pytest.mark.interop

PACKAGE = Path(__file__).resolve().parents[2] / "interop_js"
TIMEOUT = 90.0


def need_mqttjs() -> None:
    if not (PACKAGE / "node_modules" / "mqtt").is_dir():
        pytest.skip("MQTT.js is not installed: run `make setup`")


def check(result: dict[str, Any], version: int) -> None:
    """What the round trip must have brought back."""
    assert result.get("granted") == [0, 2], result
    for qos, message in enumerate(result["messages"]):
        assert (message["topic"], message["payload"], message["qos"]) == ("a/x", f"m{qos}", qos)
        if version == 5:
            assert message["properties"] == {"userProperties": {"key": "value"}, "contentType": "text"}
    assert (result["will"]["payload"], result["will"]["qos"]) == ("bye", 1)
    assert (result["retained"]["payload"], result["retained"]["retain"]) == ("still here", True)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("transport", ["mqtt", "ws"])
async def test_round_trip_in_node(version: int, transport: str) -> None:
    need("node", "nodejs")
    need_mqttjs()
    async with running() as server, web_server(server) as site:
        host, port = server.address if transport == "mqtt" else site.addresses[0]
        output = await run("node", str(PACKAGE / "main.mjs"), f"{transport}://{host}:{port}/mqtt", str(version))
    check(json.loads(output), version)


@contextlib.asynccontextmanager
async def pages(results: asyncio.Queue[Any]) -> AsyncIterator[str]:
    """A site with the page of the round trip; what it posts comes out of the queue."""

    async def result(request: web.Request) -> web.Response:
        results.put_nowait(json.loads(await request.text()))
        return web.Response()

    async def file(request: web.Request) -> web.FileResponse:
        name = request.path.removeprefix("/")
        return web.FileResponse(PACKAGE / "node_modules/mqtt/dist/mqtt.min.js" if name == "mqtt.js" else PACKAGE / name)

    app = web.Application()
    app.router.add_post("/result", result)
    for name in ("mqtt.js", "roundtrip.mjs", "roundtrip.html"):
        app.router.add_get(f"/{name}", file)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_round_trip_in_a_page_in_chromium(tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed (Debian package chromium)")
    need_mqttjs()
    results: asyncio.Queue[Any] = asyncio.Queue()
    async with running() as server, pages(results) as origin, web_server(server, (origin,)) as site:
        host, port = site.addresses[0]
        for version in (4, 5):
            page = f"{origin}/roundtrip.html?url=ws://{host}:{port}/mqtt&version={version}"
            browser = await asyncio.create_subprocess_exec(
                *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync"),
                *(f"--user-data-dir={tmp_path / str(version)}", "--remote-debugging-port=0", page),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(TIMEOUT):
                    check(await results.get(), version)
            finally:
                browser.terminate()
                await browser.wait()
