"""Publish by HTTP, subscribe by WebSocket and server-sent events: the guarantees, rights and limits of MQTT."""

from __future__ import annotations

import asyncio
import ssl
import textwrap
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import aiomqtt
import msgspec
import pytest
import trustme
from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSServerHandshakeError
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from saps.frontend.mqtt.driver.access_files import edit_users
from saps.frontend.web.clients.clients import USERS
from saps.frontend.web.clients.messages import Content, message_of, publish_of
from saps.frontend.web.http.credentials import credentials
from saps.frontend.web.http.problems import ProblemError
from tests.frontend.web.conftest import TIMEOUT, Site, Start, authorization


async def told(socket: ClientWebSocketResponse, op: str) -> dict[str, Any]:
    """The next thing of this kind that the broker says."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            message = await socket.receive()
            found: dict[str, Any] = msgspec.json.decode(message.data)
            if found["op"] == op:
                return found


async def subscribed(site: Site, *filters: str, qos: int = 1, **query: Any) -> ClientWebSocketResponse:
    socket = await site.session.ws_connect(f"{site.url}/v1/socket", params=query)
    await socket.send_json({"op": "subscribe", "filters": [{"filter": f, "qos": qos} for f in filters]})
    await told(socket, "subscribed")
    site.kept.append(socket)
    return socket


class EventStream:
    """Server-sent events, as a browser reads them."""

    def __init__(self, site: Site, **query: Any) -> None:
        self._site = site
        self._query = query
        self.last_id = ""

    async def __aenter__(self) -> EventStream:
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        url = f"{self._site.url}/v1/events"
        self._response = await self._site.session.get(url, params=self._query, headers=headers)
        assert self._response.status == 200, await self._response.text()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._response.close()

    async def next(self) -> dict[str, Any]:
        """The data of the next event."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                line = (await self._response.content.readline()).decode().rstrip("\n")
                if line.startswith("id: "):
                    self.last_id = line[4:]
                if line.startswith("data: "):
                    found: dict[str, Any] = msgspec.json.decode(line[6:])
                    return found


# ---- publish


async def test_the_answer_says_what_puback_says_across_brokers(start: Start) -> None:
    here = await start("b1")
    there = await start("b2", join=here.broker.ref.address)
    for qos, status in ((0, 202), (1, 200), (2, 200)):
        found, answer = await here.publish("air/ward1", b"21", qos=qos)
        assert found == status
        assert answer.get("reason") == (None if not qos else "no matching subscribers")
    socket = await subscribed(there, "air/#")
    local = await subscribed(here, "+/ward1")
    for qos in (1, 2):
        _, answer = await here.publish("air/ward1", b"21", qos=qos, property="unit=ug")
        assert (answer["subscribers"], answer["brokers"], answer["reason"]) == (2, 1, "success")
        for one in (socket, local):
            message = await told(one, "message")
            assert message == {
                "op": "message",
                "topic": "air/ward1",
                "payload": "21",
                "qos": 1,
                "properties": [["unit", "ug"]],
                "message": qos,
            }


async def test_an_mqtt_client_and_a_web_client_see_each_other(site: Site) -> None:
    host, port = site.broker.server.address
    async with aiomqtt.Client(host, port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe("a/#", qos=2)
        socket = await subscribed(site, "b")
        assert (await site.publish("a/b", b"\xff\0", qos=2, expiry=60))[1]["subscribers"] == 1
        message = await anext(aiter(client.messages))
        assert (message.payload, message.qos) == (b"\xff\0", 2)
        assert getattr(message.properties, "MessageExpiryInterval", None) == 60
        await client.publish("b", b"\xfe", qos=1)
        assert (await told(socket, "message"))["data"] == b64encode(b"\xfe").decode()


async def test_what_is_retained_anywhere_is_had_by_get_and_is_no_page_of_this_broker(start: Start) -> None:
    one = await start("b1")
    other = await start("b2", join=one.broker.ref.address)
    async with one.session.post(
        f"{one.url}/v1/topics/page?qos=1&retain=1",
        data=b"<script>",
        headers={"Content-Type": "text/html", "Saps-Properties": "a=b%20c&d=%C3%A4"},
    ) as response:
        assert response.status == 200
    async with other.session.get(f"{other.url}/v1/topics/page") as response:
        assert (response.status, await response.read()) == (200, b"<script>")
        assert response.headers["Saps-Properties"] == "a=b+c&d=%C3%A4"
        assert "sandbox" in response.headers["Content-Security-Policy"]
    assert (await one.publish("page", b"", qos=1, retain="true"))[0] == 200
    assert (await other.json("/v1/topics/page"))["status"] == 404


@pytest.mark.parametrize(
    ("path", "query", "status", "field"),
    [
        ("a/%23", "", 400, "topic"),
        ("a", "qos=3", 400, "qos"),
        ("a", "qos=1&qos=1", 400, "qos"),
        ("a", "retain=maybe", 400, "retain"),
        ("a", "expiry=-1", 400, "expiry"),
        ("a", "correlation=%25", 400, "correlation"),
        ("a", "property=x", 400, "property"),
        ("a", "colour=red", 400, "colour"),
        ("/".join("a" * 200), "qos=1", 400, None),
    ],
)
async def test_bad_input_is_a_problem_that_names_the_fault(
    site: Site, path: str, query: str, status: int, field: str | None
) -> None:
    async with site.session.post(f"{site.url}/v1/topics/{path}?{query}") as response:
        assert (response.status, response.content_type) == (status, "application/problem+json")
        assert (await response.json(content_type=None)).get("field") == field


@given(
    st.builds(
        Content,
        data=st.binary(max_size=50),
        retain=st.booleans(),
        expiry=st.none() | st.integers(0, 0xFFFFFFFF),
        content_type=st.none() | st.text(max_size=9),
        response_topic=st.none() | st.text(max_size=9),
        correlation=st.none() | st.binary(max_size=9),
        properties=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3).map(tuple),
    )
)
def test_a_message_is_the_same_after_packet_and_json(content: Content) -> None:
    message = message_of(publish_of("t", 0, content))
    again = msgspec.json.decode(msgspec.json.encode(message), type=type(message))
    assert again == message
    assert again.body == content.body
    names = ("retain", "expiry", "content_type", "response_topic", "correlation", "properties")
    assert [getattr(again, name) for name in names] == [getattr(content, name) for name in names]


@given(st.text())
def test_a_header_of_credentials_is_understood_or_refused(header: str) -> None:
    for text in (header, f"Basic {header}", f"Bearer {b64encode(header.encode()).decode()}"):
        status = None
        try:
            found = credentials(text)
        except ProblemError as error:
            status = error.problem.status
        if status is None:
            assert text != header or header.lower().startswith(("basic ", "bearer "))
            assert (found.user is None) == (found.password is None)
        else:
            assert status == 401


# ---- subscribe


async def test_messagepack_is_the_same_in_binary(site: Site) -> None:
    socket = await site.session.ws_connect(f"{site.url}/v1/socket", protocols=("saps-msgpack",))
    for op in (
        {"op": "subscribe", "id": 1, "filters": [{"filter": "a"}]},
        {"op": "publish", "id": 2, "topic": "a", "data": b"\xff", "qos": 1},
    ):
        await socket.send_bytes(msgspec.msgpack.encode(op))
    got = {}
    for _ in range(4):
        found = msgspec.msgpack.decode((await socket.receive()).data)
        got[found["op"]] = found
    assert got.keys() == {"welcome", "subscribed", "message", "published"}
    assert got["message"]["data"] == b"\xff"
    assert (got["published"]["subscribers"], got["published"]["brokers"]) == (1, 0)


async def test_a_websocket_client_that_does_not_acknowledge_is_sent_it_again(site: Site) -> None:
    socket = await subscribed(site, "a", client="c", expiry=60)
    for number in range(3):
        await site.publish("a", b"%d" % number, qos=1)
    got = [await told(socket, "message") for _ in range(3)]
    await socket.send_json({"op": "ack", "message": got[0]["message"]})
    await socket.send_json({"op": "publish", "topic": "x", "qos": 1})
    await told(socket, "published")
    await socket.close()
    await site.publish("a", b"3", qos=1)
    socket = await site.session.ws_connect(f"{site.url}/v1/socket?client=c&expiry=60")
    assert (await told(socket, "welcome"))["session"]
    again = [await told(socket, "message") for _ in range(3)]
    assert [(m["payload"], m.get("again", False)) for m in again] == [("1", True), ("2", True), ("3", False)]


async def test_a_session_of_an_mqtt_client_goes_on_on_a_websocket_with_qos_2(site: Site) -> None:
    host, port = site.broker.server.address
    kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    kept.SessionExpiryInterval = 60
    async with aiomqtt.Client(host, port, identifier="c", protocol=aiomqtt.ProtocolVersion.V5, properties=kept) as mqtt:
        await mqtt.subscribe("a", qos=2)
    for number in range(3):
        await site.publish("a", b"%d" % number, qos=2)
    socket = await site.session.ws_connect(f"{site.url}/v1/socket?client=c&expiry=60")
    for number in range(3):
        message = await told(socket, "message")
        assert (message["payload"], message["qos"]) == (str(number), 2)
        await socket.send_json({"op": "ack", "message": message["message"]})
    await socket.send_json({"op": "publish", "topic": "x", "qos": 2})
    await told(socket, "published")
    session = site.broker.server.frontend.sessions["c"]
    assert (session.window.inflight, session.connection is not None) == ({}, True)


async def test_bad_requests_on_a_websocket_are_told_and_leave_it_open(site: Site) -> None:
    socket = await subscribed(site, "a")
    for bad in (
        "{",
        '{"op": "dance"}',
        '{"op": "publish", "topic": "a/#", "id": 7}',
        '{"op": "publish", "topic": "$SYS/x", "qos": 1, "id": 8}',
        '{"op": "publish", "topic": "a", "payload": "x", "data": "eA=="}',
        '{"op": "unsubscribe", "filters": ["#/a"]}',
        '{"op": "ack", "message": 0}',
    ):
        await socket.send_str(bad)
        assert (await told(socket, "problem"))["title"]
    await socket.send_json({"op": "subscribe", "id": 3, "filters": [{"filter": "a/#/b"}, {"filter": "c", "qos": 1}]})
    granted = (await told(socket, "subscribed"))["granted"]
    assert granted == [{"filter": "a/#/b", "refused": "topic filter invalid"}, {"filter": "c", "qos": 1}]


async def test_events_go_on_after_the_last_that_came_without_loss_or_repetition(site: Site) -> None:
    stream = EventStream(site, filter="a", qos=1)
    async with stream:
        for number in range(10):
            await site.publish("a", b"%d" % number, qos=1)
        got = [(await stream.next())["payload"] for _ in range(5)]
    client = stream.last_id.partition("/")[0]
    session = site.broker.server.frontend.sessions[client]
    for number in range(10, 20):  # some while it may still seem to be there, some while it is away
        await site.publish("a", b"%d" % number, qos=1)
    async with stream:
        got += [(await stream.next())["payload"] for _ in range(15)]
        assert got == [str(number) for number in range(20)]
        assert site.broker.server.frontend.sessions[client] is session


async def test_events_bring_what_is_retained_once(site: Site) -> None:
    await site.publish("a", b"kept", qos=1, retain="true")
    stream = EventStream(site, filter="a", qos=1)
    async with stream:
        assert (await stream.next())["retain"]
    async with stream:
        await site.publish("a", b"new", qos=1)
        assert (await stream.next())["payload"] == "new"


async def test_a_reader_that_stops_is_held_to_the_limits_of_mqtt(start: Start) -> None:
    site = await start(
        limits__write_high_water=1 << 16, limits__maximum_queued=20, limits__publisher_wait=0.01, limits__linger=0.2
    )
    reader, writer = await asyncio.open_connection(*site.url.removeprefix("http://").split(":"), limit=1 << 10)
    writer.write(b"GET /v1/events?filter=big&qos=1&expiry=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await reader.readuntil(b"retry:")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    frontend = site.broker.server.frontend
    async with asyncio.timeout(TIMEOUT):
        while not frontend.counts.too_slow:
            assert (await site.publish("big", bytes(200_000), qos=1))[0] == 200
    writer.close()


async def test_the_rate_of_one_connection_is_limited_and_nothing_is_lost(start: Start) -> None:
    site = await start(limits__message_rate=50)
    socket = await subscribed(site, "a", qos=0)
    async with ClientSession(connector=TCPConnector(limit=1)) as session:
        for _ in range(60):
            async with session.post(f"{site.url}/v1/topics/a") as response:
                assert response.status == 202
    for _ in range(60):
        await told(socket, "message")
    publishers = [s for s in site.broker.server.frontend.sessions.values() if s.publisher.published == 60]
    assert len(publishers) == 1


# ---- who may


ACL = """
[[rule]]
allow = "both"
users = "ann"
topics = ["own/%u/#", "$SYS/saps/mesh"]

[[rule]]
allow = "publish"
anonymous = true
topics = "in"
"""


async def guarded(start: Start, folder: Path, **settings: Any) -> Site:
    """A broker with a user ann, whose password is secret."""
    edit_users(folder / "passwords", "ann", b"secret")
    (folder / "acl.toml").write_text(ACL)
    return await start(auth__passwords=folder / "passwords", auth__acl=folder / "acl.toml", **settings)


async def test_a_connection_has_few_clients_however_many_users_it_names(start: Start) -> None:
    """Each user of one connection was a client until the connection ended: one peer took the connections of all."""
    site = await start()
    for number in [*range(20), 19, 0]:
        assert (await site.publish("a", b"x", qos=1, auth=(f"u{number}", "")))[0] == 200
        assert len(site.broker.server.frontend.connections) <= USERS


async def test_the_users_and_rules_of_mqtt_hold(start: Start, tmp_path: Path) -> None:
    site = await guarded(start, tmp_path)
    ann, wrong = ("ann", "secret"), ("ann", "guess")
    assert (await site.publish("in", b"x", qos=1))[0] == 200
    assert (await site.publish("own/ann/x", b"x", qos=1))[0] == 403
    assert (await site.publish("own/ann/x", b"x", qos=1, auth=ann))[0] == 200
    assert (await site.publish("own/bob/x", b"x", qos=1, auth=ann))[0] == 403
    assert (await site.publish("own/ann/x", b"x", qos=1, auth=wrong))[0] == 401
    bearer = {"Authorization": f"Bearer {b64encode(b'ann:secret').decode()}"}
    assert (await site.json("/v1/brokers"))["status"] == 401
    assert [b["name"] for b in (await site.json("/v1/brokers", headers=bearer))["brokers"]] == ["b1"]
    async with site.session.get(f"{site.url}/metrics") as response:
        assert response.status == 401
    async with site.session.get(f"{site.url}/v1/events?filter=own/bob/x", headers=bearer) as response:
        assert response.status == 403
    with pytest.raises(WSServerHandshakeError) as caught:
        await site.session.ws_connect(f"{site.url}/v1/socket", headers={"Authorization": "Basic !"})
    assert caught.value.status == 401
    async with site.session.ws_connect(f"{site.url}/v1/socket", headers=bearer) as socket:
        await socket.send_json({"op": "subscribe", "filters": [{"filter": "#"}, {"filter": "own/bob/#"}]})
        granted = (await told(socket, "subscribed"))["granted"]
        assert [grant.get("refused") for grant in granted] == [None, "not authorized"]
        await socket.send_json({"op": "publish", "topic": "own/ann/y", "payload": "mine"})
        assert (await told(socket, "message"))["payload"] == "mine"


def example_rules() -> str:
    """The ACL file that the security page shows."""
    page = (Path(__file__).resolve().parents[3] / "docs/security.md").read_text()
    example = page.partition('    default = "deny"')[2].partition("\n\n| key of a rule")[0]
    return textwrap.dedent('    default = "deny"' + example)


async def test_the_access_rules_of_the_security_page_leave_the_operators_side_open(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "acl.toml").write_text(example_rules())
    edit_users(tmp_path / "passwords", "ann", b"secret")
    site = await start(auth__passwords=tmp_path / "passwords", auth__acl=tmp_path / "acl.toml")
    for path in ("/v1/brokers", "/v1/topics", "/v1/trees", "/v1/trace/air/x", "/v1/decisions", "/metrics"):
        async with site.session.get(site.url + path, headers=authorization(("ann", "secret"))) as response:
            assert response.status == 200, (path, await response.text())
        async with site.session.get(site.url + path) as response:
            assert response.status == 401, path


async def test_the_session_of_another_user_cannot_be_had(start: Start, tmp_path: Path) -> None:
    site = await guarded(start, tmp_path)
    bearer = {"Authorization": f"Bearer {b64encode(b'ann:secret').decode()}"}
    async with site.session.ws_connect(f"{site.url}/v1/socket?client=c&expiry=60", headers=bearer) as socket:
        await told(socket, "welcome")
        async with site.session.get(f"{site.url}/v1/events?filter=in&client=c") as response:
            assert response.status == 401
        await socket.send_json({"op": "publish", "topic": "own/ann/y", "qos": 1})
        assert await told(socket, "published")


async def test_a_certificate_is_its_user(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "b.pem")
    authority.issue_cert("x@y", common_name="ann").private_key_and_cert_chain_pem.write_to_path(tmp_path / "ann.pem")
    site = await guarded(
        start,
        tmp_path,
        web__tls="true",
        tls__certificate=tmp_path / "b.pem",
        tls__client_certificates="optional",
        tls__client_ca=tmp_path / "ca.pem",
    )
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    trusting.load_cert_chain(tmp_path / "ann.pem")
    url = site.url.replace("http:", "https:")
    async with ClientSession(connector=TCPConnector(ssl=trusting)) as session:
        async with session.post(f"{url}/v1/topics/own/ann/x?qos=1") as response:
            assert response.status == 200
        async with session.get(f"{url}/v1/brokers") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://page.example"}, 202),
        ({"Host": "evil.example:8080"}, 421),
        ({"Host": "localhost:8080"}, 202),
    ],
)
async def test_pages_from_elsewhere_may_only_ask_if_they_are_named(
    start: Start, headers: dict[str, str], status: int
) -> None:
    site = await start(web__origins="https://page.example")
    async with site.session.post(f"{site.url}/v1/topics/a", headers=headers) as response:
        assert response.status == status
        allowed = response.headers.get("Access-Control-Allow-Origin")
        assert allowed == ("https://page.example" if headers.get("Origin") == "https://page.example" else None)
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "saps-qos"}
    async with site.session.options(f"{site.url}/v1/topics/a", headers={**headers, **ask}) as response:
        assert response.status == (204 if status == 202 else status)


async def test_a_web_client_that_leaves_no_session_is_let_in_at_the_limit_of_sessions(start: Start) -> None:
    site = await start(limits__maximum_sessions=1)
    socket = await subscribed(site, "a")
    status, answer = await site.publish("a", b"x", qos=1)
    assert (status, answer["reason"], answer["subscribers"]) == (200, "success", 1)
    await socket.close()


async def test_a_client_whose_session_is_taken_over_is_told(site: Site) -> None:
    socket = await subscribed(site, "a", client="c")
    async with EventStream(site, filter="a", client="c"):
        await told_closed(socket)
        assert socket.close_code == 1008


async def told_closed(socket: ClientWebSocketResponse) -> None:
    async with asyncio.timeout(TIMEOUT):
        while (await socket.receive()).type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
            pass
