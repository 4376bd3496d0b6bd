"""Tokens: who is let in by one, what it allows, when it ends, and how its keys change."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import jwt
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from saps.frontend.mqtt.access.logins.tokens import Keys, Token, TokenError, Tokens
from saps.frontend.mqtt.access.options import AuthOptions, JwtOptions
from saps.frontend.mqtt.codec.packets import V5, V311, Connack, Connect, Disconnect, Will
from saps.frontend.mqtt.codec.reasons import Reason
from saps.frontend.mqtt.driver import token_keys
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.mqtt.driver.access_files import AccessError
from saps.frontend.mqtt.driver.server import MqttServer
from tests.frontend.mqtt.access.guarded import REMOTE, GuardedBench, GuardedClient, users
from tests.frontend.mqtt.access.serving import serving
from tests.frontend.mqtt.access.tokens import KINDS, Issuer, key_set
from tests.frontend.mqtt.peers import need, run

ISSUER = Issuer()
OPTIONS = JwtOptions(keys="keys.json", rights_claim="mqtt")
BAD, FORBIDDEN = Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED
TIMEOUT = 20


class TokenBench(GuardedBench):
    """A broker that takes tokens; its clock says 1000."""

    def __init__(self, options: JwtOptions = OPTIONS, keys: bytes | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.tokens = self.guard.tokens = Tokens(options, lambda: self.now)
        self.tokens.keys = Keys(keys or key_set(ISSUER))
        self.hub.routes.restricted = self.guard.restricts

    def reason(self, token: bytes, user: str | None = None, client_id: str = "c", version: int = V5) -> int:
        return self.arrival(token, user, client_id, version)[0]

    def arrival(
        self, token: bytes, user: str | None = None, client_id: str = "c", version: int = V5, will: Will | None = None
    ) -> tuple[int, GuardedClient]:
        client = self.arriving(version, REMOTE)
        client.send(Connect(client_id, version, username=user, password=token, will=will))
        self.check_passwords()
        return client.expect(Connack).reason, client


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_of_each_kind_of_key_lets_its_user_in(kind: str) -> None:
    issuer, another = Issuer("k1", kind), Issuer("k2", kind if kind != "HS256" else "ES256")
    bench = TokenBench(keys=key_set(issuer, another))
    for number in range(2):  # the second time it is known
        code, client = bench.arrival(issuer.token(), "ann", f"c{number}")
        assert code == 0
        assert client.connection.user == "ann"
    assert bench.reason(issuer.token(), "ann", version=V311) == 0
    assert bench.reason(issuer.token()) == 0
    assert bench.reason(issuer.token(), "bob") == BAD
    assert bench.guard.counts.logins == 1


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (lambda: ISSUER.token(exp=1000), "has ended"),
        (lambda: ISSUER.token(exp=None), "exp is missing"),
        (lambda: ISSUER.token(exp="2000"), "exp is no time"),
        (lambda: ISSUER.token(exp=True), "exp is no time"),
        (lambda: ISSUER.token(exp=float("nan")), "exp is no time"),
        (lambda: ISSUER.token(exp=10**400), "exp is no time"),
        (lambda: ISSUER.token(nbf=1010), "not good yet"),
        (lambda: ISSUER.token(sub=None), "names no user"),
        (lambda: ISSUER.token(sub=""), "printable characters"),
        (lambda: ISSUER.token(sub="a\nb"), "printable characters"),
        (lambda: ISSUER.token(sub="\ud800"), "printable characters"),
        (lambda: ISSUER.token()[:-8] + b"AAAAAAAA", "Signature verification failed"),
        (lambda: Issuer("k1").token(), "Signature verification failed"),
        (lambda: ISSUER.token(mqtt={"publish": "a/#/b"}), "not a topic filter"),
        (lambda: ISSUER.token(mqtt={"pub": "a"}), "unknown field"),
        (lambda: ISSUER.token(mqtt=["a"]), "Expected"),
        (lambda: ISSUER.token(mqtt={"both": ["a"] * 300}), "more than 256"),
        (lambda: b"ey.e30.", "Invalid header"),
        (lambda: b"ey" + b"\xff.\0.\0", "Invalid"),
    ],
)
def test_a_token_that_is_no_good_lets_nobody_in(token: Callable[[], bytes], why: str) -> None:
    bench = TokenBench()
    found = bench.tokens.check(token())
    assert isinstance(found, str)
    assert why in found
    assert bench.reason(token(), client_id="d") == BAD


def forged(header: dict[str, Any], key: bytes = b"") -> bytes:
    """A token that chooses its own algorithm."""
    parts = [
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, {"sub": "ann", "exp": 2000})
    ]
    text = b".".join(parts)
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(text, key) if key else b""
    return text + b"." + urlsafe_b64encode(signature).rstrip(b"=")


def test_a_token_does_not_choose_its_algorithm() -> None:
    issuer = Issuer("k1", "RS256")
    bench = TokenBench(keys=key_set(issuer))
    public = json.dumps(issuer.public()).encode()
    for token in (forged({"alg": "none", "kid": "k1"}), forged({"alg": "HS256", "kid": "k1"}, public)):
        assert isinstance(bench.tokens.check(token), str)
    assert bench.reason(issuer.token()) == 0


def test_a_token_without_a_key_id_is_good_if_there_is_one_key_only() -> None:
    issuer = Issuer(None)
    assert TokenBench(keys=key_set(issuer)).reason(issuer.token()) == 0
    assert TokenBench(keys=key_set(issuer, ISSUER)).reason(issuer.token()) == FORBIDDEN


def test_issuer_and_audience_are_those_of_the_settings() -> None:
    bench = TokenBench(JwtOptions(keys="k", issuer="https://id.city", audience="mqtt", user_claim="name"))
    good: dict[str, Any] = {"iss": "https://id.city", "aud": ["web", "mqtt"], "name": "bob"}
    code, client = bench.arrival(ISSUER.token(**good))
    assert (code, client.connection.user) == (0, "bob")
    for wrong in ({"iss": "https://other"}, {"aud": "web"}, {"aud": None}, {"iss": None}, {"name": 7}):
        assert bench.reason(ISSUER.token(**good | wrong)) == BAD


RIGHTS = {"publish": "air/%u/#", "subscribe": ["alarm/#", "own/%c"], "both": "chat"}


def test_a_claim_gives_rights_within_those_of_the_acl() -> None:
    everything = '[[rule]]\nallow = "both"\ntopics = "#"'
    for acl, alarms in (("", 0), (everything, 0), ('[[rule]]\ndeny = "both"\ntopics = "alarm/#"\n' + everything, 0x87)):
        bench = TokenBench(acl=acl)
        _, client = bench.arrival(ISSUER.token(mqtt=RIGHTS))
        assert client.subscribe("alarm/1", "own/c", "own/d", "chat", "air/ann/x") == [alarms, 0, 0x87, 0, 0x87]
        for topic in ("air/ann/x", "air/bob/x", "own/c", "chat"):
            client.publish(topic)
        assert bench.hub.published == 2
    code, client = TokenBench().arrival(ISSUER.token())  # a token without the claim allows nothing
    assert (code, client.subscribe("chat")) == (0, [0x87])
    assert TokenBench().reason(ISSUER.token(mqtt=RIGHTS), client_id="a/b") == Reason.CLIENT_IDENTIFIER_NOT_VALID


def test_a_session_keeps_the_rights_of_its_token_over_a_reload_and_a_new_token_changes_them() -> None:
    bench = TokenBench()
    _, client = bench.arrival(ISSUER.token(mqtt={"subscribe": "a/#"}))
    assert client.subscribe("#") == [0]
    bench.replace()
    bench.publish("a/1")
    bench.publish("b/1")
    assert [message.topic for message in client.messages()] == ["a/1"]
    _, again = bench.arrival(ISSUER.token(mqtt={"subscribe": "b/#"}))
    assert again.subscribe("#") == [0]
    bench.publish("a/1")
    bench.publish("b/1")
    assert [message.topic for message in again.messages()] == ["b/1"]


def test_a_client_is_disconnected_when_its_token_ends_and_a_new_one_begins_anew() -> None:
    bench = TokenBench()
    _, client = bench.arrival(ISSUER.token(exp=1060, mqtt={"both": "#"}), will=Will("gone", b"x"))
    bench.advance(59.9)
    assert not client.closed
    bench.advance(0.2)
    assert client.expect(Disconnect).reason == FORBIDDEN
    assert bench.hub.published == 1
    assert bench.reason(ISSUER.token(exp=1060)) == BAD
    assert bench.reason(ISSUER.token(exp=1100)) == 0


def test_passwords_go_on_beside_tokens_and_guesses_at_tokens_keep_nobody_out() -> None:
    bench = TokenBench(users=users(ann=b"secret"))
    for _ in range(30):
        assert bench.reason(Issuer("k1").token()) == BAD
    assert bench.reason(b"secret", "ann") == 0
    assert bench.reason(b"ey.no.token", "ann") == BAD
    assert bench.reason(ISSUER.token(), "ann") == 0


def test_a_key_that_is_not_known_is_asked_for_once_and_the_client_waits() -> None:
    bench, newer = TokenBench(), Issuer("k2")
    waiting: list[Callable[[], None]] = []

    class Once:
        def newer(self, done: Callable[[], None]) -> bool:
            waiting.append(done)
            return len(waiting) == 1

    bench.guard.keys = Once()
    client = bench.arriving(V5, REMOTE)
    client.send(Connect("c", password=newer.token()))
    assert client.packets == []
    assert bench.reason(newer.token(), client_id="d") == FORBIDDEN  # no other question now
    assert bench.guard.counts.unavailable == 1
    bench.tokens.keys = Keys(key_set(newer))
    waiting[0]()
    bench.flush()
    assert client.expect(Connack).reason == 0
    assert bench.reason(ISSUER.token(), client_id="e") == FORBIDDEN  # the old key is gone


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": 1}', b'{"keys": [{"kty": "RSA"}]}'])
def test_what_is_no_key_set(text: bytes) -> None:
    with pytest.raises(TokenError, match="is no JSON Web Key Set"):
        Keys(text)


def test_keys_for_encryption_and_of_unknown_kinds_are_left_out() -> None:
    text = key_set(ISSUER, Issuer("e").public(use="enc"), {"kty": "strange", "kid": "s"}, {"kty": "oct", "k": 1})
    assert len(Keys(text)) == 1


members: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["kty", "crv", "x", "y", "n", "e", "k", "kid", "alg", "use"]),
    st.sampled_from(["RSA", "EC", "oct", "OKP", "P-256", "Ed25519", "AQAB", "sig", "ES256", "none", 1, None, [], {}]),
)
texts = st.binary(max_size=60).map(lambda tail: b"ey" + tail) | st.lists(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda some: st.lists(some, max_size=3))
    | st.dictionaries(st.sampled_from(["alg", "kid", "exp", "sub", "crit", "b64", "nbf", "mqtt"]), st.text(max_size=5)),
    min_size=2,
    max_size=3,
).map(lambda parts: b".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts))
CHECKED = TokenBench().tokens


@given(
    texts, st.binary(max_size=80) | st.lists(members, max_size=3).map(lambda keys: json.dumps({"keys": keys}).encode())
)
def test_any_bytes_are_a_token_or_none_and_a_key_set_or_none(text: bytes, keys: bytes) -> None:
    assert not isinstance(CHECKED.check(text), Token)
    with suppress(TokenError):
        Keys(keys)


values = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.sampled_from(["publish", "both"]), st.lists(st.text(max_size=4), max_size=2)),
)


@given(st.dictionaries(st.sampled_from(["exp", "nbf", "sub", "mqtt", "iat", "aud", "iss", "jti"]), values))
def test_any_claims_that_are_signed_are_a_token_or_a_reason(claims: dict[str, Any]) -> None:
    text = jwt.api_jws.encode(json.dumps(claims).encode(), ISSUER.key, "ES256", {"kid": "k1"}).encode()
    found = CHECKED.check(text)
    assert isinstance(found, Token | str)


# ---- on sockets


def attached(server: MqttServer, token: bytes, **fields: Any) -> aiomqtt.Client:
    fields.setdefault("username", "ann")
    return aiomqtt.Client(
        *server.address,
        password=token.decode(),
        protocol=aiomqtt.ProtocolVersion.V5,
        timeout=TIMEOUT,
        **fields,
    )


async def lets_in(server: MqttServer, token: bytes) -> bool:
    try:
        async with attached(server, token):
            return True
    except aiomqtt.MqttError:
        return False


def later(seconds: float) -> float:
    return time.time() + seconds


@pytest.mark.interop
async def test_real_clients_come_in_by_token_and_are_out_within_a_second_of_its_end(tmp_path: Path) -> None:
    need("mosquitto_pub", "mosquitto-clients")
    (tmp_path / "keys.json").write_bytes(key_set(ISSUER))
    async with serving(
        AuthOptions(jwt=JwtOptions(keys=f"{tmp_path}/keys.json", rights_claim="mqtt"), anonymous="never")
    ) as server:
        ends = later(2.5)
        async with attached(server, ISSUER.token(exp=ends, mqtt={"subscribe": "air/#"})) as watching:
            await watching.subscribe("air/#", qos=1)
            token = ISSUER.token("sensor", exp=later(60), mqtt={"publish": "air/%u"}).decode()
            address = ("-h", "127.0.0.1", "-p", str(server.address[1]), "-u", "sensor", "-P", token)
            await run("mosquitto_pub", *address, "-q", "1", "-t", "air/sensor", "-m", "21.5")
            heard = aiter(watching.messages)
            assert (await asyncio.wait_for(anext(heard), TIMEOUT)).payload == b"21.5"
            with pytest.raises(aiomqtt.MqttError):
                await asyncio.wait_for(anext(heard), TIMEOUT)
            assert ends <= time.time() + 0.01
            assert time.time() < ends + 1
            watching._disconnected.cancel()


async def test_keys_in_a_file_change_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "LOOK", 0.02)
    file, newer = tmp_path / "keys.json", Issuer("k2")
    file.write_bytes(key_set(ISSUER))
    async with serving(AuthOptions(jwt=JwtOptions(keys=str(file)), anonymous="never")) as server:
        old = attached(server, ISSUER.token(exp=later(60)), identifier="old")
        async with old:
            file.write_bytes(b"half a f")
            await asyncio.sleep(0.1)
            assert await lets_in(server, ISSUER.token(exp=later(60)))
            fresh = tmp_path / "fresh"
            fresh.write_bytes(key_set(newer))
            fresh.rename(file)
            assert await lets_in(server, newer.token(exp=later(60)))  # looked at because of it
            assert not await lets_in(server, ISSUER.token(exp=later(60)))
            await old.publish("a", b"x", qos=1)  # who is in stays in
    file.unlink()
    with pytest.raises(AccessError) as caught:
        AccessControl(AuthOptions(jwt=JwtOptions(keys=str(file))), None, exposed=False)
    assert caught.value.faults[0].setting == "auth.jwt.keys"


async def test_keys_at_a_url_change_without_a_restart_and_outlive_its_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, status, keys = 0, 500, key_set(ISSUER)
    monkeypatch.setattr(token_keys, "AGAIN", 0.0)
    monkeypatch.setattr(token_keys, "RETRY", 0.02)

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(body=keys, status=status)

    runner = web.AppRunner(app := web.Application())
    app.router.add_get("/jwks", answer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with serving(
            AuthOptions(jwt=JwtOptions(keys=f"http://127.0.0.1:{port}/jwks", refresh=60.0), anonymous="never")
        ) as server:
            assert not await lets_in(server, ISSUER.token(exp=later(60)))  # no keys: nobody
            status = 200
            while not await lets_in(server, ISSUER.token(exp=later(60))):
                pass
            newer = Issuer("k2")
            keys = key_set(newer)
            assert await lets_in(server, newer.token(exp=later(60)))
            before, status = asked, 500
            assert not await lets_in(server, ISSUER.token(exp=later(60)))
            assert await lets_in(server, newer.token(exp=later(60)))
            assert asked > before
            before = asked
            reloading = server.reload()
            assert reloading is not None
            assert await reloading
            async with asyncio.timeout(TIMEOUT):
                while asked == before:
                    assert await lets_in(server, newer.token(exp=later(60)))
    finally:
        await runner.cleanup()
    assert "answers 500" in caplog.text
