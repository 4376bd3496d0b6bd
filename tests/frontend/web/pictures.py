"""Takes the pictures of the operator's page that the documents show: ``make pictures``.

A city that is not there for the views of the mesh and of the network, and the tutorial as it stands for the decisions.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.docs.test_tutorial import ROOT, Typist
from tests.frontend.web.chromium import Page, browser
from tests.frontend.web.snapshots import snapshot
from tests.frontend.web.synthetic import city_site

DOCS = ROOT / "docs"
READY = "document.documentElement?.dataset.ready === 'yes'"
PICTURE = "![The decision on the operator's page](tutorial-decisions.png)"
PORT = "8080"
"""Of the operator's page in the tutorial."""


async def city(page: Page) -> None:
    """100 brokers and 10,000 topics, some moments long so that the chart has lines."""
    async with city_site(*[snapshot(100, 10_000, turn=turn) for turn in range(6)]) as url:
        await page.open(f"{url}/")
        await page.until(READY)
        await page.until("saps.store.times.length === 6")
        await page.screenshot(DOCS / "web-mesh.png")
        await page.run("saps.go('network')")
        await page.run("saps.views.network.tree = saps.store.network.trees[0].topic")
        await page.run("saps.views.network.refresh()")
        await page.screenshot(DOCS / "web-network.png")


async def tutorial(page: Page, folder: Path) -> None:
    """All that the tutorial says before its picture; then the picture."""
    before, found, _ = (DOCS / "tutorial.md").read_text().partition(PICTURE)
    assert found, "the tutorial has no such picture"
    typist = Typist(before, folder)
    try:
        await asyncio.to_thread(typist.do)
        await page.open(f"http://127.0.0.1:{typist.ports[PORT]}/#decisions")
        await page.until("document.querySelector('#view-decisions tbody')?.innerText.includes('constructed')")
        await page.until("document.querySelector('#view-decisions .history')?.innerText.includes('build')")
        bottom = "document.querySelector('#view-decisions .history').getBoundingClientRect().bottom"
        await page.screenshot(DOCS / "tutorial-decisions.png", height=await page.run(bottom) + 40)
    finally:
        typist.terminal.kill()


async def main() -> None:
    with tempfile.TemporaryDirectory() as profile:
        async with browser(Path(profile)) as page:
            await city(page)
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as folder:
        async with browser(Path(profile)) as page:
            await tutorial(page, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
