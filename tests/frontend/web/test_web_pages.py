"""The pages in Chromium: against real brokers, and against a city of 100 brokers and 10,000 topics."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.frontend.web.chromium import Page, browser
from tests.frontend.web.conftest import Start, crash
from tests.frontend.web.snapshots import snapshot
from tests.frontend.web.synthetic import city_site
from tests.frontend.web.test_web_mesh import mesh_of
from tests.frontend.web.test_web_topics import guarded, subscribed

pytestmark = pytest.mark.interop

READY = "document.documentElement?.dataset.ready === 'yes'"
INSIDE = "document.documentElement.scrollWidth <= innerWidth"
"""Nothing is cut off at the side."""
SHOTS = os.environ.get("SAPS_SCREENSHOTS", "")
"""A folder in which pictures are kept, to be looked at."""
LOOKS = [("phone", False), ("phone", True), ("desktop", True), ("desktop", False)]


def only_asks(page: Page, url: str) -> bool:
    """Nothing was fetched from anywhere else."""
    asked = {urlsplit(request).netloc for request in page.requests if not request.startswith("data:")}
    return asked <= {urlsplit(url).netloc, ""}


async def clean(page: Page, name: str) -> None:
    """Nothing is wrong with what the page shows now, light and dark, on a desktop and on a phone."""
    for size, dark in LOOKS:
        await page.look(size, dark=dark)
        await page.run("new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(seen)))")
        assert await page.run(AXE) == [], (size, dark)
        assert await page.run(INSIDE), (size, dark)
        if SHOTS:
            await page.screenshot(Path(SHOTS) / f"{name}-{size}-{'dark' if dark else 'light'}.png")


async def fields(page: Page, **values: str) -> None:
    for name, value in values.items():
        await page.run(f"document.getElementById('{name}').value = {value!r}")


async def test_the_example_publishes_and_subscribes_each_way(start: Start, tmp_path: Path) -> None:
    site = await start()
    async with browser(tmp_path) as page:
        await page.open(f"{site.url}/example")
        await page.until(
            "!!document.getElementById('publish')?.onsubmit && !!document.getElementById('subscribe').onsubmit"
        )
        messages = "[...document.querySelectorAll('#messages li')].map(item => item.innerText).join('|')"
        for way, told in (("socket", "WebSocket"), ("events", "events")):
            await fields(page, way=way, filter="air/#", topic="air/ward1", payload=f"by {way} <b>", qos="1")
            await page.run("document.getElementById('subscribed').value = ''")
            await page.run("document.querySelector('#subscribe button').click()")
            await page.until("document.getElementById('subscribed').value === 'Subscribed to air/#.'")
            await page.run("document.querySelector('#publish button').click()")
            text = await page.until(f"({messages}).includes('by {way} <b>') && {messages}")
            assert "air/ward1" in text
            await page.until(f"({messages}).includes('by {told}')")
            await page.until("document.getElementById('published').value.startsWith('success')")
        await fields(page, payload="through the socket", qos="2")
        await page.run("document.getElementById('publish-socket').click()")
        await page.until(f"({messages}).includes('through the socket')")
        await fields(page, topic="air/+")
        await page.run("document.querySelector('#publish button').click()")
        await page.until("document.getElementById('published').value.startsWith('Bad topic')")
        assert only_asks(page, site.url)
        assert [fault for fault in page.faults if "400 (Bad Request)" not in fault] == []


async def test_the_page_shows_the_mesh_a_topic_and_its_way(start: Start, tmp_path: Path) -> None:
    sites = await mesh_of(start, 3)
    for site in sites[1:]:
        await subscribed(site, "air/#")
    await sites[0].publish("air/<i>x", b"21", qos=1)
    async with browser(tmp_path) as page:
        await page.open(f"{sites[0].url}/")
        await page.until(READY)
        await page.until("saps.store.brokers.size === 3 && saps.store.topics.size === 1")
        assert (
            await page.run("saps.views.mesh.graph.cy.nodes(':childless').map(n => n.id()).sort().join()") == "b0,b1,b2"
        )
        assert await page.run("saps.views.mesh.graph.cy.nodes(':parent').length") == 2
        await page.press("2")
        await page.until("document.querySelectorAll('#view-topics .window .columns').length === 1")
        await page.press("ArrowDown")
        await page.press("Enter")
        await page.until("document.querySelector('#view-topics .detail h2')?.textContent === 'air/<i>x'")
        await page.press("t")
        way = await page.until(
            "document.querySelectorAll('.way .tree li').length === 3 && document.querySelector('.way').innerText"
        )
        assert "knows its members exactly" in way
        await page.press("Escape")
        await page.until("!document.querySelector('#view-topics .detail h2')")
        for key, view, told in (("3", "network", "web.controller"), ("4", "decisions", "web.ofgate")):
            await page.press(key)
            assert told in await page.run(f"document.querySelector('#view-{view}').innerText")
            assert await page.run(AXE) == []
        await page.press("1")
        await crash(sites[2])
        await page.until("saps.store.brokers.size === 2 && saps.store.away.size === 1")
        grey = "saps.views.mesh.graph.cy.nodes('[state = \\'gone\\']').map(n => n.id()).join()"
        await page.until(f"{grey} === 'b2'")
        assert "dead" in await page.run("document.querySelector('.events').innerText")
        await clean(page, "mesh-away")
        await page.run("saps.views.mesh.show('b2')")
        await page.run(
            "[...document.querySelectorAll('.detail button')].find(b => b.innerText === 'Forget it').click()"
        )
        await page.until(f"{grey} === ''")
        assert only_asks(page, sites[0].url)
        assert page.faults == []


@pytest.mark.parametrize(("size", "dark"), [("desktop", False), ("phone", True)])
async def test_a_city_of_a_hundred_brokers_stays_readable(size: str, dark: bool, tmp_path: Path) -> None:
    async with city_site(*[snapshot(100, 10_000, turn=turn) for turn in range(3)]) as url, browser(tmp_path) as page:
        await page.open(f"{url}/", size, dark=dark)
        await page.until(READY)
        assert await page.run("saps.store.topics.size") == 10_000
        assert await page.run("saps.views.mesh.graph.cy.nodes(':childless').length") == 100
        visible = "saps.views.mesh.graph.cy.edges(':visible').filter(e => e.data('far') === 1).length"
        assert await page.run(visible) == 0, "links between clusters are bundled"
        box = "saps.views.mesh.graph.cy.elements().renderedBoundingBox()"
        assert await page.run(f"(b => b.x1 >= -1 && b.y1 >= -1 && b.x2 <= innerWidth + 1)({box})")
        for view in ("mesh", "topics", "network", "decisions"):
            await page.run(f"saps.go('{view}')")
            assert await page.run(INSIDE), view
            await page.screenshot(tmp_path / f"{view}.png")
            assert (tmp_path / f"{view}.png").stat().st_size > 10_000, f"{view} is empty"
        await page.run("saps.go('topics')")
        rows = "document.querySelectorAll('#view-topics .window .columns').length"
        assert 5 < await page.run(rows) < 60, "only what is seen is there"
        await page.press("/")
        await page.call("Input.insertText", text="sensor09999")
        await page.until(f"{rows} === 1")
        await page.press("Escape")
        assert await page.run("saps.views.topics.search.value") == "sensor09999", "it leaves the field, and keeps it"
        await page.press("ArrowDown")
        await page.press("Enter")
        title = await page.until("document.querySelector('#view-topics .detail h2')?.textContent")
        assert title.endswith("/sensor09999")
        assert await page.run(INSIDE)
        await page.until("saps.store.times.length === 3")
        assert await page.run("saps.store.topics.size") == 10_000
        assert page.faults == []


async def test_who_must_log_in_gets_a_form_and_a_clear_refusal(start: Start, tmp_path: Path) -> None:
    site = await guarded(start, tmp_path, auth__anonymous="never")
    async with browser(tmp_path / "profile") as page:
        await page.open(f"{site.url}/")
        await page.until("document.getElementById('login')?.hidden === false")
        told = "document.getElementById('login-fault').innerText"
        assert await page.run(told) == "Sign in to see this broker."
        await clean(page, "login")
        heights = "[...document.querySelectorAll('#login input')].map((field) => field.offsetHeight)"
        assert max(await page.run(heights)) < 60
        for password, done in (("guess", f"{told}.includes('bad user name or password')"), ("secret", READY)):
            await fields(page, **{"login-user": "ann", "login-password": password})
            await page.run("document.querySelector('#login button').click()")
            await page.until(done)
        await page.until("document.getElementById('login').hidden && saps.store.brokers.size === 1")
        assert await page.run(AXE) == []
        await page.open(f"{site.url}/")
        await page.until(READY)  # the session remembers


async def test_a_lost_connection_greys_the_page_and_says_when_it_was_seen(start: Start, tmp_path: Path) -> None:
    site = await start()
    async with browser(tmp_path) as page:
        await page.open(f"{site.url}/")
        await page.until(READY)
        await site.broker.stop()
        await page.until("document.documentElement.dataset.lost === 'yes'")
        assert "no connection, last seen" in await page.run("document.getElementById('status').innerText")
        assert "grayscale" in await page.run("getComputedStyle(document.querySelector('main')).filter")


@pytest.mark.parametrize("size", ["desktop", "phone"])
async def test_no_view_has_a_finding_of_axe(size: str, tmp_path: Path) -> None:
    async with city_site(snapshot(20, 100)) as url, browser(tmp_path) as page:
        for dark in (False, True):
            await page.open(f"{url}/", size, dark=dark)
            await page.until(READY)
            for view in ("mesh", "topics", "network", "decisions"):
                await page.run(f"saps.go('{view}')")
                assert await page.run(AXE) == [], (view, dark)
                if view in OPENED:
                    script, shown = OPENED[view]
                    await page.run(script)
                    await page.until(shown)
                    assert await page.run(AXE) == [], (view, "opened", dark)
            await page.run("document.getElementById('keys').showModal()")
            assert await page.run(AXE) == [], ("keys", dark)
            await page.open(f"{url}/example", size, dark=dark)
            await page.until("!!document.getElementById('publish')?.onsubmit")
            assert await page.run(AXE) == [], ("example", dark)


async def test_decisions_are_a_table_sorted_by_any_column(tmp_path: Path) -> None:
    first = "document.querySelector('#view-decisions tbody td').innerText"
    async with city_site(snapshot(20, 100)) as url, browser(tmp_path) as page:
        await page.open(f"{url}/")
        await page.until(READY)
        await page.run("saps.go('decisions')")
        assert await page.run("document.querySelectorAll('#view-decisions tbody tr').length") == 40
        most = await page.run(first)
        await page.run("[...document.querySelectorAll('th button')].find(b => b.innerText.startsWith('Net')).click()")
        assert await page.run(first) != most
        sort = "document.querySelector('th[aria-sort=ascending]').innerText"
        assert (await page.run(sort)).startswith("Net")
        await page.run("[...document.querySelectorAll('th button')].find(b => b.innerText === 'Topic').click()")
        topics = "[...document.querySelectorAll('#view-decisions tbody td:first-child')].map(e => e.innerText)"
        assert await page.run(f"(t => t.join() === t.toSorted().join())({topics})")


async def test_decisions_explain_money_and_how_the_job_is(tmp_path: Path) -> None:
    """The job in the picture decided long ago: that is a warning."""
    async with city_site(snapshot(20, 100)) as url, browser(tmp_path) as page:
        await page.open(f"{url}/")
        await page.until(READY)
        await page.run("saps.go('decisions')")
        text = await page.run("document.querySelector('#view-decisions').innerText")
        for said in (
            "Saved 60 MB of 80 MB predicted, 75 %, all trees so far", "social/ward3: taken back: it saved 3.0 kB",
            "12, 1 failed", "81,000, 7 late", "1 file, 3 rows", "No decision for ",
        ):  # fmt: skip
            assert said in text
        cells = "[...document.querySelectorAll('#view-decisions tbody tr')[0].cells].map(cell => cell.innerText)"
        assert (await page.run(cells))[4:6] == ["4.0 MB", "5.0 MB"]


async def test_captions_stay_readable_when_zoomed_out(tmp_path: Path) -> None:
    async with city_site(snapshot(100, 100)) as url, browser(tmp_path) as page:
        await page.open(f"{url}/")
        await page.until(READY)
        cy = "saps.views.mesh.graph.cy"
        size = f"parseFloat({cy}.nodes(':childless')[0].style('font-size')) * {cy}.zoom()"
        assert 8 <= await page.run(size) <= 14


OPENED = {
    "mesh": ("saps.views.mesh.show('ward2-1')", "!!document.querySelector('#view-mesh .detail h2')"),
    "topics": (
        "saps.views.topics.open([...saps.store.topics.keys()][0]); saps.views.topics.run()",
        "document.querySelectorAll('#view-topics .way .tree li').length > 1",
    ),
    "network": (
        "saps.views.network.tree = saps.store.network.trees[0].topic; saps.views.network.refresh()",
        "!document.querySelector('#view-network .note').hidden",
    ),
}
"""What a view shows once something was chosen, and how one sees that it does."""
AXE_FILE = Path(__file__).resolve().parents[2] / "interop_js/node_modules/axe-core/axe.min.js"
_FOUND = """
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html).join(" | ")}`);
"""
_AXE = json.dumps(AXE_FILE.read_text() if AXE_FILE.exists() else "throw Error('no axe-core: make setup')")
AXE = f"(async () => {{ if (!window.axe) (0, eval)({_AXE}); {_FOUND} }})()"
"""What axe finds wrong with the page as it is."""
