"""An HTTP service that knows users and rights: what it is asked, what counts as an answer, and what it costs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.access.logins.service import KEPT_REFUSAL, Answer, Service, read_answer
from saps.frontend.mqtt.access.options import AuthOptions, HttpOptions
from saps.frontend.mqtt.codec.packets import V5, Connack, Connect, Disconnect
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.access_files import AccessError
from tests.frontend.mqtt.access.guarded import LOCAL, REMOTE, GuardedBench, GuardedClient, users
from tests.frontend.mqtt.access.serving import serving
from tests.frontend.mqtt.peers import need, run

LOGIN, RIGHTS = "https://id.city/login", "https://id.city/rights"
BAD, UNAVAILABLE, BUSY = Reason.BAD_USER_NAME_OR_PASSWORD, Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY
FORBIDDEN = Reason.NOT_AUTHORIZED
TIMEOUT = 20


class ServiceBench(GuardedBench):
    """A broker that asks a service, which the test answers for."""

    def __init__(
        self, login: str = LOGIN, rights: str = "", topics: str = "", cache: float = 60.0, **given: Any
    ) -> None:
        super().__init__(**given)
        self.asked: list[tuple[str, dict[str, Any], str, Callable[[Answer | None], None]]] = []
        self.room = 100
        options = HttpOptions(login=login, rights=rights, topics=topics, cache=cache)
        self.guard.service = Service(options, b"s" * 32, lambda: self.now)
        self.guard.service.ask = self.ask
        self.hub.routes.restricted = self.guard.restricts

    def ask(self, url: str, body: bytes, host: str, done: Callable[[Answer | None], None]) -> bool:
        if len(self.asked) >= self.room:
            return False
        self.asked.append((url, json.loads(body), host, done))
        return True

    def connect(
        self, user: str | None = "ann", password: bytes | None = b"secret", client_id: str = "c"
    ) -> GuardedClient:
        client = self.arriving(V5, REMOTE if user else LOCAL)
        client.send(Connect(client_id, username=user, password=password))
        self.check_passwords()
        return client

    def answer(self, status: int = 200, **said: Any) -> None:
        """To the question asked first."""
        try:
            found = read_answer(status, json.dumps(said).encode())
        except ValueError:
            found = None
        self.asked.pop(0)[3](found)
        self.flush()


def reason(client: GuardedClient) -> int:
    return client.expect(Connack).reason


def test_the_service_is_asked_once_and_its_answer_is_remembered() -> None:
    bench = ServiceBench(cache=60)
    client = bench.connect()
    assert client.packets == []
    url, said, host, _ = bench.asked[0]
    assert (url, host) == (LOGIN, "192.0.2.7")
    assert said == {"user": "ann", "password": "secret", "client": "c", "address": "192.0.2.7"}
    bench.answer(allow=True)
    assert reason(client) == 0
    assert reason(bench.connect()) == 0  # at once
    bench.advance(61)
    bench.connect()
    bench.connect(password=b"other")
    assert len(bench.asked) == 2


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (200, {"allow": False}, BAD),
        (401, {}, BAD),
        (403, {"allow": True}, BAD),
        (200, {}, UNAVAILABLE),
        (200, {"allow": "yes"}, UNAVAILABLE),
        (200, {"allow": True, "expires": -1}, UNAVAILABLE),
        (200, {"allow": True, "user": ""}, UNAVAILABLE),
        (200, {"allow": True, "rights": {"publish": "a/#/b"}}, UNAVAILABLE),
        (200, {"allow": True, "rights": {"pub": "a"}}, UNAVAILABLE),
        (204, {"allow": True}, UNAVAILABLE),
        (302, {"allow": True}, UNAVAILABLE),
        (500, {"allow": True}, UNAVAILABLE),
    ],
)
def test_nobody_comes_in_without_an_answer_that_allows_it(status: int, said: dict[str, Any], expected: int) -> None:
    bench = ServiceBench()
    client = bench.connect()
    bench.answer(status, **said)
    assert reason(client) == expected
    assert client.closed
    assert (bench.guard.counts.logins, bench.guard.counts.unavailable) == (expected == BAD, expected == UNAVAILABLE)
    bench.connect()  # what could not be answered is asked again; a refusal is remembered for a while
    assert len(bench.asked) == (expected == UNAVAILABLE)
    bench.advance(KEPT_REFUSAL)
    bench.connect()
    assert bench.asked


def test_an_answer_says_who_it_is_what_it_may_do_and_for_how_long() -> None:
    bench = ServiceBench()
    client = bench.connect()
    bench.answer(allow=True, user="anna", expires=30, rights={"both": "air/%u/#"})
    assert reason(client) == 0
    assert client.connection.user == "anna"
    assert client.subscribe("air/anna/x", "air/ann/x") == [0, FORBIDDEN]
    bench.advance(31)
    assert client.expect(Disconnect).reason == FORBIDDEN


def test_too_many_questions_are_refused_at_once_and_wrong_guesses_back_off() -> None:
    bench = ServiceBench()
    bench.room = 0
    assert reason(bench.connect()) == BUSY
    bench.room = 100
    good = bench.connect("bob", b"right", "good")
    bench.answer(allow=True)
    assert reason(good) == 0
    for number in range(10):
        guess = bench.connect(password=b"guess %d" % number)
        bench.answer(allow=False)
        assert reason(guess) == BAD
    assert reason(bench.connect(password=b"another")) == Reason.CONNECTION_RATE_EXCEEDED
    assert bench.asked == []
    assert reason(bench.connect("bob", b"right", "good")) == 0  # is known


def test_users_of_the_password_file_and_clients_without_a_user_do_not_need_the_service() -> None:
    bench = ServiceBench(users=users(operator=b"word"))
    assert reason(bench.connect("operator", b"word")) == 0
    assert reason(bench.connect(None, None, "local")) == 0
    assert bench.asked == []
    assert reason(bench.connect("ann", b"\xff", "binary")) == BAD


def test_rights_of_a_client_that_is_known_otherwise_are_asked_for() -> None:
    bench = ServiceBench(login="", rights=RIGHTS)
    client = bench.arriving(V5, REMOTE._replace(certificate_user="ann"))
    client.send(Connect("c"))
    assert bench.asked[0][:2] == (RIGHTS, {"user": "ann", "password": None, "client": "c", "address": "192.0.2.7"})
    bench.answer(allow=True, rights={"subscribe": "a/#"})
    assert reason(client) == 0
    assert client.subscribe("a/1", "b/1") == [0, FORBIDDEN]
    for said, expected in (({"allow": False}, FORBIDDEN), ({}, UNAVAILABLE)):
        other = bench.arriving(V5, REMOTE._replace(certificate_user=f"user {expected}"))
        other.send(Connect("d"))
        bench.answer(**said)
        assert reason(other) == expected


def test_login_and_rights_are_asked_one_after_the_other() -> None:
    bench = ServiceBench(rights=RIGHTS)
    client = bench.connect()
    bench.answer(allow=True)
    assert client.packets == []
    bench.answer(allow=True, rights={"both": "#"})
    assert reason(client) == 0
    assert reason(bench.connect()) == 0
    assert bench.asked == []


members = st.dictionaries(
    st.sampled_from(["allow", "user", "expires", "rights"]),
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.dictionaries(st.text(max_size=4), st.text()),
)


@given(st.integers(100, 599), st.binary(max_size=60) | members.map(lambda said: json.dumps(said).encode()))
def test_any_answer_is_one_or_an_error(status: int, body: bytes) -> None:
    try:
        found = read_answer(status, body)
    except ValueError:
        return
    assert not found.allow or status == 200


# ---- on sockets


@asynccontextmanager
async def service(answer: Callable[[dict[str, Any]], web.Response]) -> AsyncIterator[str]:
    """A service on this machine; gives its address."""

    async def handle(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer of-the-broker"
        return answer({"path": request.path, **await request.json()})

    app = web.Application()
    app.router.add_post("/{path}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.interop
async def test_real_clients_are_let_in_by_a_real_service_and_its_answers_count(tmp_path: Path) -> None:
    need("mosquitto_pub", "mosquitto-clients")
    (tmp_path / "token").write_text("of-the-broker\n")
    asked: list[str] = []

    def answer(said: dict[str, Any]) -> web.Response:
        asked.append(said["user"])
        if said["user"] == "slow":
            return web.Response(status=503)
        allow = said["password"] == "secret"
        return web.json_response({"allow": allow, "rights": {"both": "air/%u/#"}})

    async with (
        service(answer) as url,
        serving(
            AuthOptions(http=HttpOptions(login=f"{url}/login", token_file=f"{tmp_path}/token"), anonymous="never")
        ) as server,
    ):
        common = (
            "mosquitto_pub",
            "-V",
            "5",
            "-h",
            "127.0.0.1",
            "-p",
            str(server.address[1]),
            "-q",
            "1",
            "-r",
            "-m",
            "x",
        )
        for topic in ("air/ann/1", "air/bob/1"):
            await run(*common, "-u", "ann", "-P", "secret", "-i", "ann", "-t", topic)
        assert [message.topic for message in server.hub.retained_for("#")] == ["air/ann/1"]
        assert asked == ["ann"]
        for user, word in (("ann", "guess"), ("slow", "secret")):
            with pytest.raises(AssertionError, match=r"(?i)bad user name|not authori|unavailable"):
                await run(*common, "-u", user, "-P", word, "-t", "air/ann/2")
        refused = server.describe()
        assert (refused["refused_logins"], refused["refused_unavailable"]) == (1, 1)
        async with aiomqtt.Client(*server.address, username="bob", password="secret", timeout=TIMEOUT) as bob:
            await bob.subscribe("air/#", qos=1)


async def test_a_reload_takes_a_new_token_for_the_service_and_asks_it_anew(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    asked: list[str] = []

    def answer(said: dict[str, Any]) -> web.Response:
        asked.append(said["user"])
        return web.json_response({"allow": True})

    async with (
        service(answer) as url,
        serving(
            AuthOptions(http=HttpOptions(login=f"{url}/login", token_file=f"{tmp_path}/token"), anonymous="never")
        ) as server,
    ):

        async def lets_in() -> bool:
            try:
                async with aiomqtt.Client(*server.address, username="ann", password="x", identifier="c"):
                    return True
            except aiomqtt.MqttError:
                return False

        assert not await lets_in()
        (tmp_path / "token").write_text("of-the-broker")
        for number in (1, 2):
            reloading = server.reload()
            assert reloading is not None
            assert await reloading
            assert await lets_in()
            assert await lets_in()
            assert len(asked) == number


async def test_a_service_that_does_not_answer_or_is_not_there_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-broker")
    hanging = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hanging.wait()
        writer.close()

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    for url in (f"http://127.0.0.1:{port}/login", "http://127.0.0.1:1/login"):
        options = HttpOptions(login=url, timeout=0.2, waiting=8)
        async with serving(AuthOptions(http=options, anonymous="never")) as server:
            began = time.monotonic()
            clients = [
                aiomqtt.Client(*server.address, username=f"u{n}", password="x", timeout=TIMEOUT, identifier=f"u{n}")
                for n in range(5)
            ]
            found = await asyncio.gather(*(client.__aenter__() for client in clients), return_exceptions=True)
            assert all(isinstance(each, aiomqtt.MqttError) for each in found)
            assert time.monotonic() - began < TIMEOUT / 2
            refused = server.describe()
            assert refused["refused_unavailable"] + refused["refused_busy"] == 5
            assert refused["refused_unavailable"] >= 2  # a quarter of those that may wait is for one address
    hanging.set()
    silent.close()


def test_a_token_file_that_is_empty_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(AccessError) as caught:
        AccessControl(AuthOptions(http=HttpOptions(login=LOGIN, token_file=f"{tmp_path}/token")), None, exposed=False)
    assert caught.value.faults[0].setting == "auth.http.token_file"
