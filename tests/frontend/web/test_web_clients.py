"""``/v1/clients``: found, shown and disconnected from another broker than their own. ``/v1/bans``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from saps.broker import bans
from saps.config import SettingError
from saps.operations.bans import BanList
from saps.operations.bans_io import read_bans
from saps.operations.values import SORTS
from saps.runtime.atomic_file import replacing
from tests.frontend.web.conftest import TIMEOUT, Site, Start
from tests.frontend.web.test_web_mesh import mesh_of, until
from tests.frontend.web.test_web_topics import subscribed


async def test_a_client_is_found_shown_and_disconnected_from_any_broker(start: Start) -> None:
    sites = await mesh_of(start, 3)
    socket = await subscribed(sites[2], "air/+", client="wards/sensor 7", expiry=60)
    found = await sites[0].json("/v1/clients?filter=air/x&search=SENSOR")
    (row,) = found["clients"]
    assert (row["client"], row["broker"], row["connected"], found["total"]) == ("wards/sensor 7", "b2", True, 1)
    assert row["protocol"] == "MQTT 5 over Web"
    assert (await sites[0].json("/v1/clients?broker=b1"))["total"] == 0
    shown = await sites[1].json("/v1/clients/wards%2Fsensor%207")
    assert [each["filter"] for each in shown["subscriptions"]] == ["air/+"]
    assert shown["expiry"] == 60
    await sites[0].publish("air/x", b"1")
    busy = await sites[0].json("/v1/clients?sort=rate")
    assert all(row["published_rate"] is not None for row in busy["clients"])
    async with sites[0].session.delete(f"{sites[0].url}/v1/clients/wards%2Fsensor%207") as response:
        told = await response.json()
    assert told == {"client": "wards/sensor 7", "broker": "b2", "connected": True, "session_ended": False}
    assert (await socket.receive()).type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.CLOSE)
    (row,) = (await sites[0].json("/v1/clients?state=away"))["clients"]
    assert (row["client"], row["connected"]) == ("wards/sensor 7", False)
    async with sites[0].session.delete(f"{sites[0].url}/v1/clients/wards%2Fsensor%207?session=end") as response:
        assert (await response.json())["session_ended"]
    assert (await sites[0].json("/v1/clients/wards%2Fsensor%207"))["status"] == 404


async def test_pages_have_every_client_once_in_the_order_of_a_whole_answer(start: Start) -> None:
    sites = await mesh_of(start, 3)
    for number in range(7):
        await subscribed(sites[number % 3], "air/#", client=f"c{number}")
    for sort in SORTS:
        whole = await sites[0].json(f"/v1/clients?sort={sort}")
        pages, after = list[Any](), ""
        while not pages or after:
            pages.append(await sites[0].json(f"/v1/clients?sort={sort}&limit=3{after}"))
            after = f"&after={pages[-1]['next']}" if pages[-1]["next"] else ""
        assert [len(page["clients"]) for page in pages] == [3, 3, 1]
        assert [row["client"] for page in pages for row in page["clients"]] == [r["client"] for r in whole["clients"]]
        assert (whole["next"], {page["total"] for page in pages}) == (None, {7})
    other = (await sites[0].json("/v1/clients?sort=dropped&limit=3"))["next"]
    for wrong in (other, "%F0", "W10", "e30"):
        assert (await sites[0].json(f"/v1/clients?after={wrong}"))["status"] == 400


async def test_a_ban_holds_at_all_brokers_once_it_is_answered_and_after_restarts(start: Start, tmp_path: Path) -> None:
    first = await start("b0", operations__bans=tmp_path / "b0.bans")
    others = [await start(f"b{n}", join=first.broker.ref.address) for n in (1, 2)]
    socket = await subscribed(others[1], "#", client="flooder", expiry=60)

    async def order(site: Site, method: str, path: str, **body: Any) -> tuple[int, Any]:
        async with site.session.request(method, site.url + path, json=body or None) as response:
            return response.status, await response.json(content_type=None)

    async def refused(site: Site, client: str) -> bool:
        try:
            async with site.session.ws_connect(f"{site.url}/v1/socket", params={"client": client}):
                return False
        except aiohttp.WSServerHandshakeError as error:
            return error.status == 403

    status, told = await order(first, "POST", "/v1/bans", kind="client", name="flooder", reason="floods")
    assert (status, told["brokers"], told["disconnected"], told["complete"]) == (200, 3, 1, True)
    assert (await socket.receive()).type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.CLOSE)
    assert all([await refused(site, "flooder") for site in (first, *others)])
    assert not await refused(others[0], "other")
    assert [ban["reason"] for ban in (await others[0].json("/v1/bans"))["bans"]] == ["floods"]

    late = await start("b3", join=first.broker.ref.address)  # a neighbour tells it
    assert late.broker.operations is not None
    async with asyncio.timeout(TIMEOUT):
        while not late.broker.operations.bans.table.live():  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(0.05)
    for site in (late, *others, first):
        await site.broker.stop()
    again = await start("b0", operations__bans=tmp_path / "b0.bans")
    assert await refused(again, "flooder")
    status, told = await order(again, "DELETE", "/v1/bans/client/flooder")
    assert (status, told["ban"]["lifted"]) == (200, True)
    assert not await refused(again, "flooder")
    what = [(entry["what"], entry["subject"]) for entry in (await again.json("/v1/audit"))["entries"]]
    assert what == [("lift ban", "client flooder")]
    (tmp_path / "b9.bans").write_text("{")
    with pytest.raises(SettingError, match=r"operations\.bans"):
        await start("b9", operations__bans=tmp_path / "b9.bans")


async def test_a_broker_that_stops_while_it_writes_its_bans_writes_them_all(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(path: Path, found: BanList) -> None:
        with replacing(path) as out:
            loop.call_soon_threadsafe(begun.set)
            time.sleep(0.2)
            out.write(msgspec.json.encode(found))

    monkeypatch.setattr(bans, "write_bans", slowly)
    path = tmp_path / "b0.bans"
    site = await start("b0", operations__bans=path)
    for name in ("first", "second"):
        async with site.session.post(f"{site.url}/v1/bans", json={"kind": "client", "name": name}) as response:
            assert response.status == 200
        await begun.wait()
    await site.broker.stop()
    assert {ban.name for ban in read_bans(path)} == {"first", "second"}
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


async def test_retained_messages_are_browsed_a_page_at_a_time_and_deleted(start: Start) -> None:
    sites = await mesh_of(start, 2)
    for number in range(5):
        await sites[number % 2].publish(f"air/{number}", b"%d" % number, qos=1, retain="true")
    await sites[0].publish("other", b"\xff", qos=1, retain="true", expiry=60)

    async def page(**asked: Any) -> tuple[list[str], bool]:
        found = await sites[1].json("/v1/retained", params=asked)
        assert found["complete"]
        return [row["topic"] for row in found["messages"]], found["more"]

    await until(page, lambda found: len(found[0]) == 6)
    assert await page(filter="air/#", limit=3) == (["air/0", "air/1", "air/2"], True)
    assert await page(filter="air/#", limit=3, after="air/2") == (["air/3", "air/4"], False)
    (row,) = (await sites[1].json("/v1/retained?filter=other"))["messages"]
    assert (row["text"], row["size"], row["broker"]) == ("0xff", 1, "b0")
    assert 0 < row["expires"] <= 60
    assert abs(row["at"] - time.time()) < TIMEOUT
    async with sites[1].session.delete(f"{sites[1].url}/v1/retained/air/0") as response:
        assert await response.json() == {"topic": "air/0"}

    async def gone() -> bool:
        return "air/0" not in (await page())[0]

    await until(gone, bool)
    assert (await sites[0].json("/v1/topics/air/0"))["status"] == 404
    (entry,) = (await sites[0].json("/v1/audit?search=retained"))["entries"]
    assert (entry["subject"], entry["before"]["text"]) == ("air/0", "0")


async def test_a_broker_is_drained_from_another_one(start: Start) -> None:
    sites = await mesh_of(start, 2)
    url = f"{sites[0].url}/v1/drain?broker=b1"
    async with sites[0].session.post(url, json={"rate": 0}) as response:
        assert (await response.json(content_type=None))["detail"] == "not a number that can be used"
    async with sites[0].session.post(url, json={"grace": 0}) as response:
        assert (await response.json())["broker"] == "b1"
    await until(lambda: sites[0].json("/v1/brokers"), lambda found: len(found["brokers"]) == 1)
    assert sites[0].broker.drain is not None
    assert not sites[0].broker.drain.drain.draining


async def test_a_client_and_a_topic_are_followed_at_whatever_broker(start: Start) -> None:
    sites = await mesh_of(start, 2)
    socket = await subscribed(sites[1], "air/#", client="c1")
    events: list[dict[str, Any]] = []

    async def follow(query: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        async with sites[0].session.get(f"{sites[0].url}/v1/follow?{query}&seconds=60") as response:
            assert response.status == 200
            async with asyncio.timeout(TIMEOUT):
                await sites[0].publish("air/x", b"21", qos=1)
                async for line in response.content:
                    if line.startswith(b"data:"):
                        events.append(msgspec.json.decode(line[5:]))
                        if wanted(events[-1]):
                            return

    await follow("client=c1", lambda event: event.get("packet") == "PUBLISH")
    assert [(e["broker"], e["what"], e["topic"], e["text"]) for e in events[-1:]] == [("b1", "out", "air/x", "21")]
    await follow("filter=air/%2B", lambda event: event["what"] == "arrived")
    assert ("b0", "published", "to other brokers, if they want it") in [
        (e["broker"], e["what"], e["why"]) for e in events if "why" in e
    ]
    assert (events[-1]["broker"], events[-1]["why"]) == ("b1", "to c1")
    await follow("client=c1&filter=%23", lambda event: event["what"] == "arrived")
    assert events[-1]["why"] == "goes to c1"
    for site in sites:  # nothing is left of it
        following = site.broker.operations
        assert following is not None
        async with asyncio.timeout(TIMEOUT):
            while following.following._follows:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.05)
        assert site.broker.hub.tracer is None
    assert [e["subject"] for e in (await sites[0].json("/v1/audit?search=follow"))["entries"]] == [
        "c1 #",
        "air/+",
        "c1",
    ]
    await socket.close()
