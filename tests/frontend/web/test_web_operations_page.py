"""The operator's page at work on clients, bans, messages and drains, in Chromium."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.frontend.web.chromium import Page, browser
from tests.frontend.web.conftest import TIMEOUT, Site, Start
from tests.frontend.web.test_web_mesh import mesh_of
from tests.frontend.web.test_web_pages import READY, clean, fields
from tests.frontend.web.test_web_roles import with_roles
from tests.frontend.web.test_web_topics import subscribed

pytestmark = pytest.mark.interop

CLIENTS = "[...document.querySelectorAll('#view-clients tbody tr td:first-child')].map(e => e.innerText.trim()).join()"
DETAIL = "(document.querySelector('#view-clients .detail')?.innerText ?? '')"


async def click(page: Page, view: str, text: str) -> None:
    button = f"[...document.querySelectorAll('#view-{view} button')].find(b => b.innerText.trim() === '{text}')"
    await page.until(f"!!{button}")
    await page.run(f"{button}.click()")


async def busy(start: Start) -> list[Site]:
    """Three brokers with clients, of which one has messages waiting and one is away."""
    sites = await mesh_of(start, 3)
    await subscribed(sites[2], "air/#", "alert/+", client="wards/sensor 7", expiry=600)
    gone = await subscribed(sites[1], "air/ward1", client="display", expiry=3600)
    await gone.close()
    for number in range(4):
        await sites[0].publish("air/ward1", f'{{"pm25": {number}}}'.encode(), qos=1, retain="true")
    return sites


async def test_clients_are_found_disconnected_and_banned_on_the_page(start: Start, tmp_path: Path) -> None:
    sites = await busy(start)
    async with browser(tmp_path) as page:
        await page.open(f"{sites[0].url}/#clients")
        await page.until(READY)
        await page.until(f"{CLIENTS}.includes('display')")
        await page.run("saps.views.clients.limit = 1")
        await page.until(f"{CLIENTS} === 'display'")
        await click(page, "clients", "Next")
        await page.until(f"{CLIENTS} === 'wards/sensor 7'")
        assert "page 2: 1 of 2 clients" in await page.run("document.querySelector('#view-clients').innerText")
        assert await page.run("saps.views.clients.next.disabled")
        await clean(page, "clients")
        await click(page, "clients", "Back")
        await page.until(f"{CLIENTS} === 'display'")
        await page.run("saps.views.clients.limit = 200")
        await page.press("/")
        await page.call("Input.insertText", text="SENSOR")
        await page.until(f"{CLIENTS} === 'wards/sensor 7'")
        await page.run("document.querySelector('#view-clients tbody button').click()")
        await page.until(f"{DETAIL}.includes('alert/+')")
        assert "#clients?wards%2Fsensor%207" in await page.run("location.href")
        await click(page, "clients", "Follow live")
        await page.until(f"{DETAIL}.includes('Waiting for what happens')")
        async with asyncio.timeout(TIMEOUT):
            while sites[2].broker.hub.tracer is None:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.02)
        await sites[0].publish("air/ward1", b"42", qos=1)
        await page.until(
            "document.querySelector('#view-clients ol.messages li')?.innerText.includes('PUBLISH air/ward1')"
        )
        await page.run("saps.views.clients.follow.narrow.value = 'alert/+'")
        await page.run("saps.views.clients.follow.narrow.dispatchEvent(new Event('change'))")
        await page.until(f"{DETAIL}.includes('Waiting for what happens')")
        await asyncio.sleep(0.5)  # until the brokers have begun
        for topic in ("air/ward1", "alert/1"):
            await sites[0].publish(topic, b"43", qos=1)
        await page.until("document.querySelector('#view-clients ol.messages li')?.innerText.includes('alert/1')")
        assert not await page.run("document.querySelector('#view-clients ol.messages').innerText.includes('air/')")
        await clean(page, "client")
        await click(page, "clients", "Disconnect")
        await page.until(f"{DETAIL}.includes('away')")
        await click(page, "clients", "Ban")
        await page.until(f"{DETAIL}.includes('client wards/sensor 7')")
        log = "(document.querySelector('#view-clients .detail ol')?.innerText ?? '')"
        await page.until(f"{DETAIL}.includes('Who changed what') && {log}.includes('disconnect')")
        await page.until(f"{log}.split('ban client wards/sensor 7 at b0 from 127.0.0.1').length === 2")
        assert not await page.run(f"{log}.includes('elsewhere')")
        await page.run("saps.views.clients.wanted.value = 'FOLLOW'; saps.views.clients.ask()")
        await page.until(f"{log}.includes('follow wards/sensor 7') && !{log}.includes('disconnect')")
        await clean(page, "bans")
        await click(page, "clients", "Lift")
        await page.until(f"{DETAIL}.includes('Nobody is banned')")
        await page.open(f"{sites[1].url}/#clients?display")
        await page.until(f"{DETAIL}.includes('Waiting') && {DETAIL}.includes('pm25')")
        await clean(page, "client-away")
        assert page.faults == []


async def test_messages_are_published_seen_browsed_and_deleted_on_the_page(start: Start, tmp_path: Path) -> None:
    sites = await busy(start)
    text = "document.querySelector('#view-messages').innerText"
    async with browser(tmp_path) as page:
        await page.open(f"{sites[1].url}/#messages")
        await page.until(READY)
        await page.until(f"{text}.includes('pm25')")
        await click(page, "messages", "Subscribe")
        await page.until(f"{text}.includes('retained')")
        await page.run("saps.views.messages.topic.value = 'alert/<b>'; saps.views.messages.payload.value = 'now'")
        await click(page, "messages", "Publish")
        await page.until("document.querySelector('ol.messages li').innerText.includes('alert/<b> now')")
        assert "success: " in await page.until("saps.views.messages.told.value")
        await clean(page, "messages")
        await click(page, "messages", "Stop")
        await click(page, "messages", "Delete")
        await page.until(f"{text}.includes('Nothing is retained')")
        assert page.faults == []


async def test_viewers_are_offered_nothing_they_may_not_do(start: Start, tmp_path: Path) -> None:
    site = await with_roles(start, tmp_path, auth__anonymous="never")
    async with browser(tmp_path / "profile") as page:
        for user, buttons in (("vera", 0), ("olga", 3), ("root", 4)):
            await page.open(f"{site.url}/#clients")
            await page.until("document.getElementById('login')?.hidden === false")
            await page.run("sessionStorage.clear()")
            await fields(page, **{"login-user": user, "login-password": user})
            await page.run("document.querySelector('#login button').click()")
            await page.until("document.getElementById('login').hidden")
            headers = {"Authorization": await page.run("sessionStorage.getItem('authorization')")}
            async with site.session.ws_connect(f"{site.url}/v1/socket?client=c-{user}", headers=headers):
                await page.run(f"saps.views.clients.open('c-{user}')")
                await page.until(f"{DETAIL}.includes('subscriptions')")
                found = "document.querySelectorAll('#view-clients .detail button[data-act]').length"
                assert await page.run(found) == buttons
            await page.run("sessionStorage.clear()")
            await page.call("Page.navigate", url="about:blank")


async def test_a_broker_is_drained_on_the_page_of_another(start: Start, tmp_path: Path) -> None:
    sites = await mesh_of(start, 2)
    async with browser(tmp_path) as page:
        await page.open(f"{sites[0].url}/")
        await page.until(READY)
        await page.until("saps.store.brokers.size === 2")
        await page.run("saps.views.mesh.show('b1')")
        await click(page, "mesh", "Drain…")
        await click(page, "mesh", "Drain b1: its clients go elsewhere, then it ends")
        await page.until("saps.store.brokers.size === 1")
        assert [fault for fault in page.faults if "404 (Not Found)" not in fault] == []  # it has left meanwhile
