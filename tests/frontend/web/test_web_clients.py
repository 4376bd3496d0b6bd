"""``/v1/clients``: found, shown and disconnected from another broker than their own."""

from __future__ import annotations

import aiohttp

from tests.frontend.web.conftest import Start
from tests.frontend.web.test_web_mesh import mesh_of
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
