"""Chromium, driven by its DevTools protocol: pages as people see them."""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

TIMEOUT = 90.0
"""Seconds for which a page may take to be as wanted."""
SIZES = {"desktop": (1360, 850, 1.0), "phone": (390, 844, 2.0)}
"""Width, height, and pixels of the screen for each of the page's."""


def chromium() -> str:
    """The program; skips the test without it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    pytest.skip("Chromium is not installed (Debian package chromium)")


class Page:
    """One page in a browser."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls = 0
        self.faults: list[str] = []
        """What the page has said to the console as errors, and exceptions nobody caught."""
        self.requests: list[str] = []
        """Every address that was asked."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the DevTools protocol."""
        self._calls += 1
        await self._socket.send_json({"id": self._calls, "method": method, "params": params})
        async with asyncio.timeout(TIMEOUT):
            while True:
                told = await self._socket.receive_json()
                if told.get("id") == self._calls:
                    assert "error" not in told, (method, told["error"])
                    result: dict[str, Any] = told["result"]
                    return result
                self._note(told.get("method", ""), told.get("params", {}))

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.faults.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def open(self, url: str, size: str = "desktop", *, dark: bool = False) -> None:
        """Show this address."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.look(size, dark=dark)
        await self.call("Page.navigate", url=url)

    async def look(self, size: str, *, dark: bool) -> None:
        """Show what is there on such a screen."""
        width, height, scale = SIZES[size]
        phone = size == "phone"
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        colors = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=colors)

    async def run(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, (script, found["exceptionDetails"])
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """The value of an expression as soon as it is true."""
        async with asyncio.timeout(TIMEOUT):
            while not (found := await self.run(script)):  # noqa: ASYNC110 - the page is asked, it does not tell
                await asyncio.sleep(0.05)
            return found

    async def press(self, key: str) -> None:
        """A key, as from a keyboard."""
        text = {"text": key} if len(key) == 1 else {}
        code = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "PageDown": 34, "End": 35}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    async def screenshot(self, path: Path, height: float | None = None) -> None:
        """What is seen, as a PNG file; `height`: pixels of the page from its top, all if left out."""
        width, all_of_it, _ = SIZES["desktop"]
        clip = {"x": 0, "y": 0, "width": width, "height": min(height or all_of_it, all_of_it), "scale": 1}
        found = await self.call("Page.captureScreenshot", format="png", **({"clip": clip} if height else {}))
        await asyncio.to_thread(path.write_bytes, b64decode(found["data"]))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Page]:
    """A browser with one empty page; gone at the end."""
    process = await asyncio.create_subprocess_exec(
        *(chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-extensions", "--disable-background-networking", "--disable-sync", "--hide-scrollbars"),
        *(f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with ClientSession() as session:
            port = await _port(profile / "DevToolsActivePort", process)
            async with session.get(f"http://127.0.0.1:{port}/json") as response:
                targets = await response.json()
            address = next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.terminate()
        await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    """Where the browser listens, once it has said so."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            assert process.returncode is None, "the browser has ended"
            if lines := await asyncio.to_thread(_lines, file):
                return int(lines[0])
            await asyncio.sleep(0.05)


def _lines(file: Path) -> list[str]:
    """Its lines, none if it is not there yet."""
    return file.read_text().splitlines() if file.exists() else []
